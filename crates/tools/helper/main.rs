//! `shell.exec` behind a pipe, one JSON request and one JSON answer a line. The tests start it as the user that
//! they want to be, and kill it where they want to see what is left.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::Mutex,
};
use tokio_util::sync::CancellationToken;
use tollgate_contract::Error;
use tollgate_sandbox::{Config, launcher};
use tollgate_tools::shell::{ExecInput, Shell, ShellConfig, Surroundings};

/// One command to run.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// Comes back with the answer.
    id: u64,
    root: PathBuf,
    cmd: String,
    timeout_s: u32,
    disk_bytes: u64,
    inodes: u64,
    /// Give up once this file is there.
    cancel_when: Option<PathBuf>,
}

fn main() -> ExitCode {
    if launcher::wanted() {
        return launcher::main();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(serve())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) | Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> std::io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let config: ShellConfig = match lines.next_line().await? {
        Some(line) => serde_json::from_str(&line)?,
        None => return Ok(()),
    };
    let shell = Arc::new(Shell::new(config, Config::default(), None));
    let stdout = Arc::new(Mutex::new(tokio::io::stdout()));
    let mut running = tokio::task::JoinSet::new();
    while let Some(line) = lines.next_line().await? {
        let request: Request = serde_json::from_str(&line)?;
        let (shell, stdout) = (shell.clone(), stdout.clone());
        running.spawn(async move {
            let answer = answer(&shell, request).await;
            let mut stdout = stdout.lock().await;
            let _ = stdout.write_all(format!("{answer}\n").as_bytes()).await;
            let _ = stdout.flush().await;
        });
    }
    while running.join_next().await.is_some() {}
    Ok(())
}

async fn answer(shell: &Shell, request: Request) -> Value {
    let cancel = CancellationToken::new();
    let around = Surroundings {
        is_full: false,
        root: &request.root,
        disk_bytes: request.disk_bytes,
        inodes: request.inodes,
        time_left: None,
        cancel: cancel.clone(),
    };
    let watching = async {
        match &request.cancel_when {
            Some(file) => {
                while !file.exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                cancel.cancel();
            }
            None => std::future::pending().await,
        }
    };
    let input = ExecInput { cmd: request.cmd.clone(), timeout_s: request.timeout_s };
    let exec = shell.exec(&input, &around);
    tokio::pin!(exec);
    let result = tokio::select! {
        result = &mut exec => result,
        () = watching => exec.await,
    };
    match result {
        Ok(output) => json!({"id": request.id, "output": output}),
        Err(error) => {
            let error = Error::from(error);
            json!({"id": request.id, "error": error.object(None), "operator": error.operator()})
        }
    }
}
