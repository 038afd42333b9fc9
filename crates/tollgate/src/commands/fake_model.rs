//! `tollgate fake-model`: a model server that says what a script says.

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tollgate_models::fake::{Script, serve};

use crate::{
    cli::FakeModelArgs,
    client,
    exit::Exit,
    output::{Failure, write_out},
};

pub(crate) fn run(args: &FakeModelArgs) -> Result<Exit, Failure> {
    let script = Script::read(&args.script).map_err(|bad| Failure::bad_input(bad.to_string()))?;
    client::wait(async {
        let cannot = |what: &str, error: &dyn std::fmt::Display| {
            Failure::bad_input(format!("cannot {what}: {error}")).with_exit(Exit::Failed)
        };
        let listener = TcpListener::bind(args.listen)
            .await
            .map_err(|error| cannot(&format!("listen on {}", args.listen), &error))?;
        let address = listener.local_addr().map_err(|error| cannot("listen", &error))?;
        let hear = |kind| signal(kind).map_err(|error| cannot("hear signals", &error));
        let (mut interrupt, mut terminate) =
            (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?);
        write_out(format!("listening on http://{address}/v1\n").as_bytes());
        let stop = CancellationToken::new();
        let serving = serve(script, listener, stop.clone());
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served.map_err(|error| cannot("serve", &error))?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        Ok(Exit::Ok)
    })
}
