//! A script as a way to a model, without a server in between.

use futures_util::StreamExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tollgate_contract::text::Clean;

use super::{
    script::Script,
    stage::{Stage, What},
};
use crate::wire::{Answer, Answering, Ask, Hide, Transport, is_about_limits};

/// A script that is played in process.
pub(crate) struct Played(Stage);

impl Played {
    pub(crate) fn new(script: Script) -> Self {
        Self(Stage::new(script, CancellationToken::new()))
    }
}

impl Transport for Played {
    fn ask(&self, ask: Ask) -> Answering {
        let stage = self.0.clone();
        Box::pin(async move {
            let what = match ask.path {
                "embeddings" => What::Embeddings,
                _ => What::Chat,
            };
            let body = ask.body.unwrap_or(Value::Null);
            let performance = stage.play(what, ask.path, body, false);
            tokio::time::sleep(performance.delay).await;
            let said = performance.headers;
            let content_type = said.iter().find(|(name, _)| name == "content-type");
            let content_type =
                content_type.map_or(performance.content_type, |(_, value)| value.as_str());
            let content_type = content_type.to_ascii_lowercase();
            let headers = said.into_iter().filter(|(name, _)| is_about_limits(name)).collect();
            let body = performance.body.stream();
            let body = body.map(|piece| piece.map_err(|cut| Clean::already(cut.to_string())));
            let (status, hide) = (performance.status, Hide::default());
            Ok(Answer { status, headers, content_type, body: Box::pin(body), hide })
        })
    }
}
