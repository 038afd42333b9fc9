//! A call that has run before, under the same Idempotency-Key: what came of it is told again, and nothing
//! runs. That somebody asked for it is recorded.

use serde_json::json;
use tollgate_contract::{InputHash, ToolName, event::Event};

use crate::{
    admit::Arrived,
    idempotency::{Ended, Memory},
    outcome::{CallFailure, ToolCallResult},
};

/// What is known of the first call.
pub(crate) struct Repeat {
    pub(crate) tool: ToolName,
    pub(crate) input_hash: InputHash,
    pub(crate) memory: Memory,
    pub(crate) ended: Ended,
}

impl Arrived {
    /// Records the repeat, and answers with what came of the first call.
    pub(crate) async fn repeat(
        &mut self,
        repeat: Repeat,
    ) -> Result<ToolCallResult, Box<CallFailure>> {
        let Repeat { tool, input_hash, memory, ended } = repeat;
        let event = self.about.repeated(self.gate.clock.now_ms(), memory.call, &ended);
        let recorded = match event {
            Ok(event) => self.gate.append(vec![event]).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            return Err(self.refuse(&error.into()).await);
        }
        self.gate.metrics.count(Some(tool.as_str()), "replayed", "");
        match ended {
            Ended::Output { output, verdict, duration_ms } => {
                let result = ToolCallResult {
                    run_id: memory.run,
                    call_id: memory.call,
                    tool,
                    input_hash,
                    output,
                    replayed: true,
                    duration_ms,
                    verdict,
                };
                self.tell(Event::RunCompleted, || json!({"result": result}));
                Ok(result)
            }
            Ended::Failed { error, verdict } => {
                self.tell(Event::RunFailed, || json!({"error": error, "verdict": verdict}));
                Err(Box::new(CallFailure {
                    run_id: memory.run,
                    call_id: memory.call,
                    input_hash: Some(input_hash),
                    operator: error.message.clone(),
                    error,
                    verdict: Some(verdict),
                    started: true,
                    replayed: true,
                }))
            }
        }
    }
}
