//! Listening: where, and how much of one client is borne.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tollgate_contract::Quoted;

use crate::{
    api::direct,
    app::{App, Settings},
    request::Transport,
    stalled::Stalled,
};

/// Most headers of one request.
const MOST_HEADERS: usize = 64;

/// An address to listen on: `HOST:PORT`, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP
    Tcp(Vec<SocketAddr>),
    /// A Unix domain socket, whose file permissions say who may come in.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not an address; it is HOST:PORT, such as 127.0.0.1:8090, or unix:/path/to/socket")]
pub struct AddressError(Quoted);

impl Address {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.into());
        if let Some(path) = text.strip_prefix("unix:") {
            // Whoever is told the address may be in another folder.
            return std::path::absolute(path).map(Self::Unix).map_err(|_| wrong());
        }
        let all: Vec<SocketAddr> = text.to_socket_addrs().map_err(|_| wrong())?.collect();
        if all.is_empty() { Err(wrong()) } else { Ok(Self::Tcp(all)) }
    }

    /// Refuses what other machines can reach, unless a proxy protects it.
    pub fn check(&self, trusted_proxy: bool) -> Result<(), BindError> {
        let is_beyond = match self {
            Self::Tcp(all) => all.iter().any(|address| !address.ip().is_loopback()),
            Self::Unix(_) => false,
        };
        if is_beyond && !trusted_proxy {
            return Err(BindError::BeyondThisMachine { address: self.to_string() });
        }
        Ok(())
    }
}

/// Why it is not possible to listen there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody else listens there.
    #[error(
        "{address} is in use; stop what is there, or choose another address with --listen (port 0 picks a free one)"
    )]
    InUse {
        /// The address.
        address: String,
    },
    /// The system says no.
    #[error("cannot listen on {address}: {error}")]
    Refused {
        /// The address.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// Keys would travel in the clear.
    #[error(
        "{address} can be reached from other machines, and keys would travel unprotected; listen on 127.0.0.1, or put a proxy with TLS in front and say `trusted_proxy = true` in [daemon]"
    )]
    BeyondThisMachine {
        /// The address.
        address: String,
    },
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listening(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; it goes with the listener, unless somebody put another in its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), id: file_id(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && file_id(&self.path) == self.id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Which file stands there; a link is itself.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Listening {
    /// Listens on `address`.
    pub async fn bind(address: &Address, trusted_proxy: bool) -> Result<Self, BindError> {
        address.check(trusted_proxy)?;
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address: address.to_string() },
            _ => BindError::Refused { address: address.to_string(), error },
        };
        match address {
            Address::Tcp(all) => {
                let listener = TcpListener::bind(all.as_slice()).await.map_err(refused)?;
                let bound = listener.local_addr().map_err(refused)?;
                Ok(Self(Socket::Tcp(listener, bound)))
            }
            Address::Unix(path) => unix(path).await.map_err(refused),
        }
    }

    /// How a client on this machine reaches it: `http://…`, or `unix:…`.
    pub fn url(&self) -> String {
        match &self.0 {
            Socket::Tcp(_, address) => format!("http://{address}"),
            Socket::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }
}

/// Listens on a Unix socket that only its owner may use.
async fn unix(path: &Path) -> io::Result<Listening> {
    // A socket that a killed process left behind answers nobody, and only such a one is removed.
    let is_socket = std::fs::symlink_metadata(path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
    let is_dead = is_socket
        && UnixStream::connect(path)
            .await
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_dead {
        std::fs::remove_file(path)?;
    }
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // Made in a folder that is its owner's alone, closed to others, and only then given its place.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A short name: the path of a socket has little room.
    let private = parent.unwrap_or(Path::new(".")).join(format!(".{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&private);
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&private)?;
    let made = socket_in(&private, path);
    let _ = std::fs::remove_dir_all(&private);
    made
}

fn socket_in(private: &Path, path: &Path) -> io::Result<Listening> {
    let new = private.join("s");
    let listener = UnixListener::bind(&new)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&new, mode)?;
    // A link fails where something is; a rename would replace it.
    std::fs::hard_link(&new, path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
        _ => error,
    })?;
    Ok(Listening(Socket::Unix(listener, SocketFile::new(path))))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(all) => match all.first() {
                Some(first) => first.fmt(f),
                None => f.write_str("nowhere"),
            },
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Serving {
    router: Router,
    app: Arc<App>,
    settings: Arc<Settings>,
    watcher: Arc<GracefulShutdown>,
}

/// Serves every listener until `stop`, then lets connections finish what they do, for a while.
pub(crate) async fn serve(
    listening: Vec<Listening>,
    router: Router,
    app: Arc<App>,
    stop: CancellationToken,
) -> GracefulShutdown {
    let settings = Arc::clone(&app.settings);
    let room = Arc::new(Semaphore::new(settings.max_connections));
    let watcher = Arc::new(GracefulShutdown::new());
    let serving = Serving { router, app, settings, watcher: Arc::clone(&watcher) };
    let mut accepting = tokio::task::JoinSet::new();
    for one in listening {
        accepting.spawn(accept(one, serving.clone(), Arc::clone(&room), stop.clone()));
    }
    while accepting.join_next().await.is_some() {}
    drop(serving);
    Arc::into_inner(watcher).unwrap_or_default()
}

async fn accept(
    listening: Listening,
    serving: Serving,
    room: Arc<Semaphore>,
    stop: CancellationToken,
) {
    loop {
        // Whoever comes when there is no room waits outside, and costs nothing.
        let permit = tokio::select! {
            permit = Arc::clone(&room).acquire_owned() => permit,
            () = stop.cancelled() => return,
        };
        let Ok(permit) = permit else { return };
        let accepted = tokio::select! {
            accepted = listening.accept(&serving, permit) => accepted,
            () = stop.cancelled() => return,
        };
        if let Err(error) = accepted {
            // Out of file handles, most likely: those who leave make room again.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Listening {
    async fn accept(&self, serving: &Serving, permit: OwnedSemaphorePermit) -> io::Result<()> {
        match &self.0 {
            Socket::Tcp(listener, bound) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are small and written whole.
                stream.set_nodelay(true)?;
                let transport = Transport::Tcp { bound: *bound, is_local: is_local(peer.ip()) };
                serving.connection(stream, transport, permit);
            }
            Socket::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                serving.connection(stream, Transport::Unix, permit);
            }
        }
        Ok(())
    }
}

fn is_local(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

impl Serving {
    /// Serves one connection in a task of its own.
    fn connection<S>(&self, stream: S, transport: Transport, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(Stalled::new(stream, self.settings.stalled_after));
        let (router, app) = (self.router.clone(), Arc::clone(&self.app));
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, app) = (router.clone(), Arc::clone(&app));
            async move {
                // What every agent asks before everything it does takes the shortest way.
                if direct::is_intent(&request) {
                    return Ok(direct::intent(&app, request, transport).await);
                }
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(transport);
                TowerToHyperService::new(router).call(request).await
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.header_timeout)
            .max_buf_size(self.settings.max_header_bytes.max(8192))
            .max_headers(MOST_HEADERS)
            .serve_connection(io, service);
        let watched = self.watcher.watcher().watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(permit);
        });
    }
}
