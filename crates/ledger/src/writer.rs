//! The one writer. What comes in while a commit runs is committed together with the next one.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::{Connection, params};

use crate::{
    Sync,
    beside::{self, Batch, Beside},
    chain::{EventHash, Head},
    checkpoints,
    error::LedgerError,
    folder::{FileId, Folder, file_id},
    reader,
    retire::{self, MakeState, Removal},
    schema,
    snapshot::Snapshot,
    work::{Fallen, Group, Work, tell},
};

/// How long a commit waits for a lock that should not be there.
const PATIENCE: Duration = Duration::from_millis(100);

/// How large a log stays that is not in use, in bytes.
const LARGEST_LOG: i64 = 128 * 1024 * 1024;

/// An event that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its place.
    pub seq: u64,
    /// Its hash.
    pub hash: EventHash,
}

/// Whom to tell of every commit, or of every failure.
pub(crate) type Listener = Box<dyn Fn(Head) + Send + std::marker::Sync>;

/// Those who are told. Who comes while they are being told hears of the next time.
#[derive(Default)]
struct Listeners(Mutex<Arc<Vec<Arc<Listener>>>>);

impl Listeners {
    fn add(&self, listener: Listener) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut listeners).push(Arc::new(listener));
    }

    fn tell(&self, head: Head) {
        let listeners = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        listeners.iter().for_each(|listener| tell(|| listener(head)));
    }
}

/// What the writer's thread is asked to do.
pub(crate) enum Job {
    /// Make a batch and store it.
    Work(Box<dyn Work>),
    /// Something that is no part of a commit with others.
    Chore(Chore),
}

/// What is done between commits.
pub(crate) enum Chore {
    /// Keep a snapshot.
    Keep(Snapshot, Sender<Result<(), LedgerError>>),
    /// Forget some of what is over by this time.
    Forget(i64, Sender<Result<u64, LedgerError>>),
    /// Store a checkpoint, and begin to remove what it retires.
    Retire {
        now_ms: i64,
        through: u64,
        state: MakeState,
        done: Sender<Result<Appended, LedgerError>>,
    },
    /// Begin the log anew, and give what was in it back to the disk if so wanted.
    Tidy { wipe: bool },
}

/// What the writer's thread shows to the others.
pub(crate) struct Shared {
    head: Mutex<Head>,
    commits: Listeners,
    failures: Listeners,
    /// The log holds what was forgotten since.
    pub(crate) untidy: AtomicBool,
    /// The log holds what is left of a commit that failed.
    pub(crate) refused: AtomicBool,
    /// About how many bytes were stored since the log was last moved.
    pub(crate) unmoved: AtomicUsize,
    /// The last event that queries know of, or [`u64::MAX`] when there are none. What they do not know yet is not
    /// removed.
    pub(crate) followed: AtomicU64,
}

impl Shared {
    /// The last event that is stored.
    pub(crate) fn head(&self) -> Head {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_head(&self, head: Head) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

/// The writer's thread, and the way to it.
pub(crate) struct Writer {
    jobs: Option<Arc<Sender<Job>>>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(folder: &Arc<Folder>, sync: Sync) -> Result<Self, LedgerError> {
        let file = folder.database();
        let log = folder.log();
        let connection = prepared(&file, sync)?;
        let mut place = Place::of(folder);
        place.check()?;
        let shared = Arc::new(Shared {
            head: Mutex::new(reader::sound_head(&connection)?),
            commits: Listeners::default(),
            failures: Listeners::default(),
            untidy: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            unmoved: AtomicUsize::new(0),
            // A file that is there is waited for until somebody follows with it.
            followed: AtomicU64::new(if folder.queries().exists() { 0 } else { u64::MAX }),
        });
        let (jobs, queue) = channel();
        let jobs = Arc::new(jobs);
        let (stop, stopped) = channel::<()>();
        // The folder stays taken until both threads have closed what they have open in it.
        let (writing, taken) = (Arc::clone(&shared), Arc::clone(folder));
        let removal = Removal::pending(&connection);
        let writer = spawn("ledger-writer", move || {
            Writing { connection, log, place, shared: writing, queue, removal }.run();
            drop((stop, taken));
        })?;
        let (moving, way, taken) = (Arc::clone(&shared), Arc::downgrade(&jobs), Arc::clone(folder));
        let checkpoints = spawn("ledger-checkpoints", move || {
            // Not far: a log that is never moved grows for ever.
            step_back(4);
            checkpoints::run(&file, &stopped, &moving, &way);
            drop(taken);
        })?;
        Ok(Self { jobs: Some(jobs), shared, threads: vec![writer, checkpoints] })
    }

    pub(crate) fn work(&self, work: Box<dyn Work>) {
        let Some(jobs) = &self.jobs else { return work.done(Err(LedgerError::Closed)) };
        if let Err(unsent) = jobs.send(Job::Work(work))
            && let Job::Work(work) = unsent.0
        {
            work.done(Err(LedgerError::Closed));
        }
    }

    pub(crate) fn keep(&self, snapshot: Snapshot) -> Result<(), LedgerError> {
        self.ask(|done| Chore::Keep(snapshot, done))
    }

    /// Forgets in steps, between which others' events are stored.
    pub(crate) fn forget(&self, now_ms: i64) -> Result<u64, LedgerError> {
        let mut gone = 0;
        loop {
            let some = self.ask(|done| Chore::Forget(now_ms, done))?;
            gone += some;
            if some < beside::MOST_FORGOTTEN {
                return Ok(gone);
            }
        }
    }

    pub(crate) fn retire(
        &self,
        now_ms: i64,
        through: u64,
        state: MakeState,
    ) -> Result<Appended, LedgerError> {
        self.ask(|done| Chore::Retire { now_ms, through, state, done })
    }

    fn ask<T>(
        &self,
        chore: impl FnOnce(Sender<Result<T, LedgerError>>) -> Chore,
    ) -> Result<T, LedgerError> {
        let (done, wait) = channel();
        let jobs = self.jobs.as_ref().ok_or(LedgerError::Closed)?;
        jobs.send(Job::Chore(chore(done))).map_err(|_| LedgerError::Closed)?;
        wait.recv().unwrap_or(Err(LedgerError::Closed))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn on_commit(&self, listener: Listener) {
        self.shared.commits.add(listener);
    }

    pub(crate) fn on_failure(&self, listener: Listener) {
        self.shared.failures.add(listener);
    }
}

impl Drop for Writer {
    /// Everything that was handed over before is still written; then the threads end.
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // The last one to let go may be somebody whom the writer is just telling of a commit.
            // The writer then ends after that, and cannot be waited for.
            if thread.thread().id() == std::thread::current().id() {
                return;
            }
            let _ = thread.join();
        }
    }
}

/// Which files the ledger is. A file that was removed or replaced can still be written to, and nobody would ever
/// find what was written; without the lock file another process could take the folder.
struct Place {
    files: Vec<(PathBuf, Option<FileId>)>,
}

impl Place {
    fn of(folder: &Folder) -> Self {
        let files = [folder.database(), folder.lock(), folder.log()];
        Self { files: files.into_iter().map(|file| (file, None)).collect() }
    }

    /// Passes if every file that was there is still where it was. The log comes with the first commit.
    fn check(&mut self) -> Result<(), LedgerError> {
        for (file, known) in &mut self.files {
            let found = file_id(file);
            if known.is_some() && *known != found {
                let file = file.display();
                let problem = format!(
                    "`{file}` was removed or replaced while it was in use; restart the gate"
                );
                return Err(LedgerError::Database(problem));
            }
            *known = found;
        }
        Ok(())
    }
}

/// The work of storing a checkpoint.
struct Checkpoint {
    now_ms: i64,
    through: Head,
    head: Head,
    state: Option<MakeState>,
    error: Option<LedgerError>,
    done: Sender<Result<Appended, LedgerError>>,
}

impl Work for Checkpoint {
    fn make(&mut self) -> Batch {
        let state = self.state.take().map(|state| state(self.head)).unwrap_or_default();
        let made = retire::checkpoint(self.now_ms, self.through, self.head, &state);
        made.unwrap_or_else(|error| {
            self.error = Some(error);
            Batch::default()
        })
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        let stored =
            result.and_then(|appended| appended.first().copied().ok_or(LedgerError::Closed));
        let _ = self.done.send(self.error.map_or(stored, Err));
    }
}

/// The writer's connection.
fn prepared(file: &Path, sync: Sync) -> Result<Connection, LedgerError> {
    let connection = schema::open(file)?;
    let synchronous = match sync {
        // In write-ahead mode a commit is in the hands of the system without waiting for the disk.
        Sync::Process => "normal",
        Sync::Full => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Nobody else writes; whoever does all the same is waited for briefly, and then it is a failure.
    connection.busy_timeout(PATIENCE)?;
    // Checkpoints are another thread's work, so that no decision waits for one.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A log that has grown under load gives the disk back when it is begun anew.
    connection.pragma_update(None, "journal_size_limit", LARGEST_LOG)?;
    // What is forgotten is overwritten, not only taken out of the index.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(connection)
}

/// Lets others go first: what this thread does can wait, and decisions cannot.
pub fn step_back(by: i32) {
    // On Linux this is the thread's own; elsewhere, or if it is refused, it only saves nothing.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(by);
    #[cfg(not(target_os = "linux"))]
    let _ = by;
}

pub(crate) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, LedgerError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| LedgerError::Database(format!("cannot start a thread: {error}")))
}

struct Writing {
    connection: Connection,
    place: Place,
    /// The write-ahead log.
    log: PathBuf,
    shared: Arc<Shared>,
    queue: Receiver<Job>,
    /// What is being removed in between.
    removal: Option<Removal>,
}

impl Writing {
    fn run(mut self) {
        let mut group = Group::default();
        while let Some(first) = self.next() {
            let mut next = Some(first);
            let (mut fallen, mut chore) = (None, None);
            while let Some(job) = next.take() {
                match job {
                    Job::Work(work) => fallen = group.make(work).err(),
                    Job::Chore(one) => chore = Some(one),
                }
                // What was made before a chore is stored before it.
                if fallen.is_none() && chore.is_none() && group.has_room() {
                    next = self.queue.try_recv().ok();
                }
            }
            self.commit(&mut group, fallen);
            if let Some(chore) = chore {
                self.attend(chore);
            }
        }
    }

    /// What comes next. Meanwhile, and when it is time, some of what is retired goes.
    fn next(&mut self) -> Option<Job> {
        loop {
            let Some(removal) = &self.removal else { return self.queue.recv().ok() };
            let rest = removal.rest();
            if !rest.is_zero() {
                match self.queue.recv_timeout(rest) {
                    Ok(job) => return Some(job),
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
            self.remove_some();
        }
    }

    fn remove_some(&mut self) {
        let known = self.shared.followed.load(Ordering::Acquire);
        let Some(removal) = &mut self.removal else { return };
        // What fails is tried again a while later.
        if matches!(removal.step(&self.connection, known), Ok(true)) {
            self.removal = None;
            // What was removed is in the log still.
            self.shared.untidy.store(true, Ordering::Release);
        }
    }

    /// Stores a checkpoint by itself: it says what everything before it led to.
    fn retire(
        &mut self,
        now_ms: i64,
        through: u64,
        state: MakeState,
        done: Sender<Result<Appended, LedgerError>>,
    ) {
        let head = self.shared.head();
        let already = self.removal.as_ref().map_or(0, Removal::through);
        let through = match retire::can_retire(&self.connection, through, already, head) {
            Ok(through) => through,
            Err(error) => {
                let _ = done.send(Err(error));
                return;
            }
        };
        let mut group = Group::default();
        let work = Checkpoint { now_ms, through, head, state: Some(state), error: None, done };
        let fallen = group.make(Box::new(work)).err();
        if self.commit(&mut group, fallen) {
            self.removal = Some(Removal::new(through));
        }
    }

    fn attend(&mut self, chore: Chore) {
        match chore {
            Chore::Retire { now_ms, through, state, done } => {
                self.retire(now_ms, through, state, done);
            }
            Chore::Keep(snapshot, done) => {
                let _ = done.send(snapshot.store(&self.connection));
            }
            Chore::Forget(now_ms, done) => {
                let gone = beside::forget_some(&self.connection, now_ms);
                if !matches!(gone, Ok(0)) {
                    self.shared.untidy.store(true, Ordering::Release);
                }
                let _ = done.send(gone);
            }
            Chore::Tidy { wipe } => {
                if checkpoints::restart(&self.connection, wipe, PATIENCE) && wipe {
                    self.shared.untidy.store(false, Ordering::Release);
                    self.shared.refused.store(false, Ordering::Release);
                }
            }
        }
    }

    /// Stores a group as one transaction, and tells everyone who waits for a part of it. What could not be made
    /// comes last: what was made before it is stored, and may have changed the same state.
    /// True when something is stored.
    fn commit(&mut self, group: &mut Group, fallen: Option<Fallen>) -> bool {
        let stores = group.stores();
        let result = if stores { self.store_group(group) } else { Ok(()) };
        if result.is_err() || fallen.is_some() {
            self.shared.failures.tell(self.shared.head());
        }
        group.tell(&result);
        if let Some((work, error)) = fallen {
            tell(|| work.done(Err(error)));
        }
        let stored = stores && result.is_ok();
        if stored {
            self.shared.commits.tell(self.shared.head());
        }
        stored
    }

    fn store_group(&mut self, group: &mut Group) -> Result<(), LedgerError> {
        let before = self.shared.head();
        let at = group.chain(before);
        let stored = self.place.check().and_then(|()| self.store(group, before));
        stored.or_else(|error| self.settle(before, at, error))?;
        self.shared.move_head(at);
        self.shared.unmoved.fetch_add(group.bytes(), Ordering::Relaxed);
        if group
            .beside()
            .any(|change| matches!(change, Beside::Delete { .. } | Beside::DeleteUnder { .. }))
        {
            self.shared.untidy.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// After a failure: what is really stored decides where the chain goes on, and whether it was one.
    fn settle(&mut self, before: Head, at: Head, error: LedgerError) -> Result<(), LedgerError> {
        if !checkpoints::cut(&mut self.connection, &self.log, PATIENCE) {
            // Then it goes when the log is begun anew.
            self.shared.refused.store(true, Ordering::Release);
        }
        match reader::head(&self.connection) {
            // The database refused after it had stored them: the hash is theirs and nobody else's.
            Ok(stored) if stored == at && at != before => Ok(()),
            Ok(stored) => {
                self.shared.move_head(stored);
                Err(error)
            }
            // If they are stored after all, the next commit finds their place taken and comes back here.
            Err(_) => Err(error),
        }
    }

    fn store(&mut self, group: &Group, before: Head) -> Result<(), LedgerError> {
        let change = self.connection.transaction()?;
        {
            let mut insert = change.prepare_cached(
                "INSERT INTO events (seq, ts, kind, agent_id, identity_id, workload_id, scope_id, tool, intent_id, payload, prev_hash, hash)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?;
            let mut prev_hash = before.hash;
            for (event, place) in group.events() {
                let seq = i64::try_from(place.seq)
                    .map_err(|_| LedgerError::Event("seq too large".to_owned()))?;
                let subject = &event.subject;
                insert.execute(params![
                    seq,
                    event.ts_ms,
                    event.kind,
                    subject.agent_id,
                    subject.identity_id,
                    subject.workload_id,
                    subject.scope_id,
                    subject.tool,
                    subject.intent_id,
                    event.payload,
                    prev_hash.as_bytes(),
                    place.hash.as_bytes(),
                ])?;
                prev_hash = place.hash;
            }
            for one in group.beside() {
                one.apply(&change)?;
            }
        }
        change.commit()?;
        Ok(())
    }
}
