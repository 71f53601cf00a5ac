//! One virtual machine, from its start to its end.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use qapi::futures::{QapiService, QapiStream, QmpStreamTokio};
use qapi::qmp;
use spandrel_cluster::{VmBoot, VmDiskBus};
use spandrel_shared::Error;
use spandrel_vm::disk::DiskName;
use spandrel_vm::{Condition, Instance, VmSpec};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::UnixStream;

use crate::command_line::arguments;
use crate::disk::{ServeDisk, ServedDisk};
use crate::folder::{DISK_SOCKET, InstanceFile, OUTGOING_SOCKET, QEMU_LOG, QMP_SOCKET, VmFolder};
use crate::process::Process;
use crate::qemu::QemuOptions;

/// How long QEMU may take until it answers over QMP, and how long its disk may take to be opened, by QEMU or before: that waits for an owner of
/// the volume.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long QEMU may take to hear a word. It hears nothing while it stops a disk whose requests wait.
const WORD_TIME_MAX: Duration = Duration::from_secs(3);

/// How often it is tried whether QEMU listens.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// How often it is asked how much has been sent.
const SENT_PAUSE: Duration = Duration::from_millis(10);

/// How long a guest may stand still for the end of a move, as far as QEMU can reckon, in milliseconds.
const DOWNTIME_MS_MAX: u64 = 100;

/// How much may be sent in a second at most, in bytes: as much as there is.
const BANDWIDTH_MAX: u64 = 10 << 30;

/// How long a process may take to end that was killed.
const END_TIME_MAX: Duration = Duration::from_secs(30);

type Service = QapiService<QmpStreamTokio<WriteHalf<UnixStream>>>;
type Stream = QapiStream<QmpStreamTokio<ReadHalf<UnixStream>>, QmpStreamTokio<WriteHalf<UnixStream>>>;

/// A virtual machine on this node.
pub struct Machine {
    name: String,
    disk: DiskName,
    folder: VmFolder,
    process: Process,
    /// What serves its disk, if that shares the guest's memory, until it is to end.
    served_disk: Mutex<Option<Box<dyn ServedDisk>>>,
    state: Mutex<State>,
    /// Called when its condition has changed.
    tell: Box<dyn Fn() + Send + Sync>,
}

struct State {
    condition: Condition,
    /// How it is told what to do; none while QEMU is not reached.
    service: Option<Arc<Service>>,
}

impl Machine {
    /// Starts a virtual machine, and returns when its guest runs.
    /// It is not started if it may not be any more, by what `may_start` says once its disk is open.
    pub async fn start(
        options: &QemuOptions,
        folder: VmFolder,
        spec: &VmSpec,
        may_start: impl Fn() -> bool,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>, Error> {
        check_files(spec)?;
        folder.prepare()?;
        let mut served_disk = serve_disk(&options.serve_disk, &folder, spec.disk, spec.disk_bus)
            .map_err(|why| not_started(spec, why, "see that the node's folder can be written to"))?;
        if let Some(disk) = &mut served_disk {
            let opened = tokio::time::timeout(ANSWER_TIME_MAX, disk.opened()).await;
            let late = || format!("its disk is not open after {} s", ANSWER_TIME_MAX.as_secs());
            opened
                .unwrap_or_else(|_| Err(late()))
                .map_err(|why| not_started(spec, why, "see how its disk is with `spandrel volume list`"))?;
        }
        if !may_start() {
            return Err(not_started(spec, "its node ends".to_owned(), "start it on another node"));
        }
        let process = spawn(options, &folder, spec)?;
        let machine = Arc::new(Self {
            name: spec.name.clone(),
            disk: spec.disk,
            folder,
            process,
            served_disk: Mutex::new(served_disk),
            state: Mutex::new(State { condition: Condition::Running, service: None }),
            tell: Box::new(tell),
        });
        if spec.is_arriving {
            machine.set(Condition::Arriving);
        }
        match machine.begin(spec.is_arriving).await {
            Ok(stream) => {
                machine.watch(stream);
                Ok(machine)
            }
            Err(why) => {
                let said = machine.folder.said_last();
                if let Err(error) = machine.end().await {
                    tracing::error!(vm = spec.name, "{error}");
                }
                let log = machine.folder.join(QEMU_LOG);
                Err(not_started(spec, said.unwrap_or(why), &format!("see {}", log.display())))
            }
        }
    }

    /// Takes a virtual machine over that a former process of the node has started. None if its process has ended.
    pub async fn adopt(
        options: &QemuOptions,
        folder: VmFolder,
        file: &InstanceFile,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let process = Process::find(file.process, file.disk())?;
        // It waits for its disk, and tries again and again to reach it.
        let served_disk = serve_disk(&options.serve_disk, &folder, file.disk(), file.disk_bus);
        let (served_disk, unserved) = match served_disk {
            Ok(served_disk) => (served_disk, None),
            Err(why) => (None, Some(why)),
        };
        let machine = Arc::new(Self {
            name: file.vm.to_string(),
            disk: file.disk(),
            folder,
            process,
            served_disk: Mutex::new(served_disk),
            // Whether it runs it says itself; if not, it is let run when it is to.
            state: Mutex::new(State { condition: Condition::Arriving, service: None }),
            tell: Box::new(tell),
        });
        if let Some(why) = unserved {
            machine.set(Condition::Failed(why));
            return Some(machine);
        }
        match tokio::time::timeout(ANSWER_TIME_MAX, machine.connect()).await {
            Ok(Ok(stream)) => machine.watch(stream),
            outcome => {
                let why = outcome.map_or_else(
                    |_| "it does not answer".to_owned(),
                    |failed| failed.err().unwrap_or_default(),
                );
                machine.set(Condition::Failed(format!(
                    "it was left by a former run of this node, and QEMU cannot be asked: {why}"
                )));
            }
        }
        Some(machine)
    }

    /// How it is.
    pub fn instance(&self) -> Instance {
        Instance { run: self.disk.run, condition: self.locked().condition.clone() }
    }

    /// Asks the guest to shut down.
    pub async fn shut_down(&self) {
        let service = self.locked().service.clone();
        let Some(service) = service else { return };
        let asked = tokio::time::timeout(WORD_TIME_MAX, service.execute(qmp::system_powerdown {})).await;
        let why = match asked {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "QEMU does not hear it".to_owned(),
        };
        tracing::warn!(vm = self.name, "the guest is not asked to shut down: {why}");
    }

    /// Ends it at once. Nothing of it is left when this returns without an error.
    pub async fn end(&self) -> Result<(), Error> {
        let cannot = |why: String| {
            Error::new(
                "VM_NOT_ENDED",
                format!("the virtual machine {} does not end", self.name),
                why,
                "look at its process: it may wait for the kernel",
            )
        };
        // Before, so that the disk is not opened once more for one that is gone.
        drop(self.served_disk.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.process.kill().map_err(|error| cannot(error.to_string()))?;
        let ended = tokio::time::timeout(END_TIME_MAX, self.process.ended()).await;
        ended.map_err(|_| cannot(format!("it was killed, and runs {} s later", END_TIME_MAX.as_secs())))?;
        self.folder.forget_instance();
        Ok(())
    }

    /// Sends what the guest has in memory to `stream`, behind which it is awaited, and stops it for the end of that.
    ///
    /// # Errors
    /// `VM_NOT_MOVED`: it runs on, or stands still and can be resumed.
    pub async fn send(&self, mut stream: impl AsyncWrite + Unpin) -> Result<(), Error> {
        let failed = |why: String| {
            Error::new(
                "VM_NOT_MOVED",
                format!("the virtual machine {} does not move", self.name),
                why,
                "look at both nodes' logs, and try again",
            )
        };
        let service =
            self.locked().service.clone().ok_or_else(|| failed("QEMU is not reached".to_owned()))?;
        let listener = self.folder.listen(OUTGOING_SOCKET).map_err(|error| failed(error.to_string()))?;
        let carry = async {
            let (mut outgoing, _) = listener.accept().await?;
            tokio::io::copy(&mut outgoing, &mut stream).await?;
            // The other side is to know that this is the end of it.
            stream.shutdown().await?;
            std::io::Result::Ok(())
        };
        let asked = async {
            let converge = qmp::MigrationCapabilityStatus {
                capability: qmp::MigrationCapability::auto_converge,
                state: true,
            };
            let capabilities = qmp::migrate_set_capabilities { capabilities: vec![converge] };
            service.execute(capabilities).await.map_err(|error| error.to_string())?;
            service
                .execute(qmp::migrate_set_parameters(limits()))
                .await
                .map_err(|error| error.to_string())?;
            let uri = Some(format!("unix:{OUTGOING_SOCKET}"));
            let migrate = qmp::migrate { uri, channels: None, detach: None, resume: None };
            service.execute(migrate).await.map_err(|error| error.to_string())?;
            self.await_sent(&service).await
        };
        let mut carry = pin!(carry);
        let mut asked = pin!(asked);
        let mut is_carried = false;
        let outcome = loop {
            tokio::select! {
                outcome = &mut asked => break outcome,
                carried = &mut carry, if !is_carried => match carried {
                    Ok(()) => is_carried = true,
                    Err(error) => break Err(format!("the other node does not take it: {error}")),
                },
            }
        };
        let outcome = match outcome {
            // QEMU has let go of the last byte, which may not be there yet.
            Ok(()) if !is_carried => carry.await.map_err(|error| error.to_string()),
            outcome => outcome,
        };
        if outcome.is_err() {
            // One that is over already is no error.
            let _ = tokio::time::timeout(WORD_TIME_MAX, service.execute(qmp::migrate_cancel {})).await;
        }
        outcome.map_err(failed)
    }

    /// Waits until QEMU has sent everything.
    async fn await_sent(&self, service: &Service) -> Result<(), String> {
        loop {
            let info = service.execute(qmp::query_migrate {}).await.map_err(|error| error.to_string())?;
            match info.status {
                Some(qmp::MigrationStatus::completed) => return Ok(()),
                Some(qmp::MigrationStatus::failed | qmp::MigrationStatus::cancelled) => {
                    return Err(info.error_desc.unwrap_or_else(|| "QEMU does not say why".to_owned()));
                }
                _ => {}
            }
            tokio::time::sleep(SENT_PAUSE).await;
        }
    }

    /// Lets the guest run that has arrived here, or was sent and stays.
    ///
    /// # Errors
    /// `VM_NOT_RESUMED`.
    pub async fn resume(&self) -> Result<(), Error> {
        let failed = |why: String| {
            let what = format!("the virtual machine {} does not go on", self.name);
            Error::new("VM_NOT_RESUMED", what, why, format!("see {}", self.folder.join(QEMU_LOG).display()))
        };
        let service =
            self.locked().service.clone().ok_or_else(|| failed("QEMU is not reached".to_owned()))?;
        let resume = async {
            loop {
                let status =
                    service.execute(qmp::query_status {}).await.map_err(|error| error.to_string())?;
                match status.status {
                    // It takes in what has come.
                    qmp::RunState::inmigrate | qmp::RunState::finish_migrate => {
                        tokio::time::sleep(CONNECT_PAUSE).await;
                    }
                    qmp::RunState::running => return Ok(()),
                    _ => {
                        return service
                            .execute(qmp::cont {})
                            .await
                            .map(drop)
                            .map_err(|error| error.to_string());
                    }
                }
            }
        };
        let resumed = tokio::time::timeout(ANSWER_TIME_MAX, resume).await;
        resumed
            .unwrap_or_else(|_| Err("it takes too long to take in what has come".to_owned()))
            .map_err(failed)?;
        self.set(Condition::Running);
        Ok(())
    }

    /// Lets the guest begin, unless it is to wait.
    async fn begin(&self, waits: bool) -> Result<Stream, String> {
        let begin = async {
            let mut stream = self.connect().await?;
            if !waits {
                stream.execute(qmp::cont {}).await.map_err(|error| error.to_string())?;
            }
            Ok(stream)
        };
        let timeout = tokio::time::timeout(ANSWER_TIME_MAX, begin);
        tokio::select! {
            begun = timeout => {
                begun.unwrap_or_else(|_| Err(format!("QEMU has not answered for {} s", ANSWER_TIME_MAX.as_secs())))
            }
            () = self.process.ended() => Err("QEMU has ended".to_owned()),
        }
    }

    /// Reaches QEMU, as soon as it listens.
    async fn connect(&self) -> Result<Stream, String> {
        loop {
            if self.process.has_ended() {
                return Err("QEMU has ended".to_owned());
            }
            // Nothing tells that a socket is being listened on.
            let Ok(socket) = self.folder.connect(QMP_SOCKET).await else {
                tokio::time::sleep(CONNECT_PAUSE).await;
                continue;
            };
            let greeted = QmpStreamTokio::open(socket).await.map_err(|error| error.to_string())?;
            return greeted.negotiate().await.map_err(|error| error.to_string());
        }
    }

    /// Follows what becomes of it, until its process has ended.
    fn watch(self: &Arc<Self>, stream: Stream) {
        let machine = Arc::clone(self);
        tokio::spawn(async move {
            let mut stream = Some(stream);
            while let Some(connected) = stream.take() {
                machine.follow(connected).await;
                machine.locked().service = None;
                // Something that this program does not understand ends a connection, too.
                stream =
                    tokio::time::timeout(ANSWER_TIME_MAX, machine.connect()).await.ok().and_then(Result::ok);
            }
            machine.process.ended().await;
            let why = machine.folder.said_last().unwrap_or_else(|| "its process has ended".to_owned());
            let is_over = matches!(machine.locked().condition, Condition::ShutDown);
            if !is_over {
                machine.set(Condition::Failed(why));
            }
        });
    }

    /// Follows what QEMU tells over one connection.
    async fn follow(&self, stream: Stream) {
        let (service, events) = stream.into_parts();
        let service = Arc::new(service);
        self.locked().service = Some(Arc::clone(&service));
        let mut events = std::pin::pin!(events);
        let asked = async {
            if let Ok(status) = service.execute(qmp::query_status {}).await {
                self.note_status(status.status);
            }
            std::future::pending::<()>().await
        };
        let told = async {
            while let Some(Ok(event)) = events.next().await {
                self.note_event(&event);
            }
        };
        tokio::select! {
            () = told => {}
            () = asked => {}
        }
    }

    fn note_status(&self, status: qmp::RunState) {
        match status {
            qmp::RunState::running => self.set(Condition::Running),
            qmp::RunState::shutdown => self.set(Condition::ShutDown),
            qmp::RunState::io_error => self.set(Condition::Paused("its disk has failed".to_owned())),
            qmp::RunState::internal_error | qmp::RunState::guest_panicked | qmp::RunState::watchdog => {
                self.set(Condition::Failed("its guest cannot go on".to_owned()));
            }
            // It is on its way to one of these, and tells when it is there; or a former run of this node has left it so.
            _ => {}
        }
    }

    fn note_event(&self, event: &qmp::Event) {
        match event {
            qmp::Event::SHUTDOWN { data, .. } if data.guest => self.set(Condition::ShutDown),
            qmp::Event::SHUTDOWN { .. } => self.set(Condition::Failed("QEMU was told to end".to_owned())),
            qmp::Event::RESUME { .. } => self.set(Condition::Running),
            qmp::Event::BLOCK_IO_ERROR { data, .. } => {
                let why = data.reason.clone();
                tracing::warn!(vm = self.name, "the virtual machine's disk has failed: {why}");
                self.set(Condition::Paused(format!("its disk has failed: {why}")));
            }
            qmp::Event::STOP { .. } => {
                let is_running = self.locked().condition == Condition::Running;
                if is_running {
                    self.set(Condition::Paused("it was stopped".to_owned()));
                }
            }
            _ => {}
        }
    }

    fn set(&self, condition: Condition) {
        let former = std::mem::replace(&mut self.locked().condition, condition.clone());
        if former != condition {
            (self.tell)();
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How one is sent.
fn limits() -> qmp::MigrateSetParameters {
    let limits = serde_json::json!({ "downtime-limit": DOWNTIME_MS_MAX, "max-bandwidth": BANDWIDTH_MAX });
    serde_json::from_value(limits).expect("QEMU's schema has these, and all others are optional")
}

/// The error that one is not started.
fn not_started(spec: &VmSpec, why: String, next: &str) -> Error {
    let what = format!("the virtual machine {} is not started", spec.name);
    Error::new("VM_NOT_STARTED", what, why, next)
}

/// Begins to serve its disk, if that is to share the guest's memory.
fn serve_disk(
    serve: &ServeDisk,
    folder: &VmFolder,
    disk: DiskName,
    bus: VmDiskBus,
) -> Result<Option<Box<dyn ServedDisk>>, String> {
    match bus {
        VmDiskBus::Nbd => Ok(None),
        VmDiskBus::VhostUser => {
            let served = serve(disk, &folder.join(DISK_SOCKET));
            served.map(Some).map_err(|error| format!("its disk cannot be served: {error}"))
        }
    }
}

/// Says which file is missing that the virtual machine starts from: QEMU's own words are about its options.
fn check_files(spec: &VmSpec) -> Result<(), Error> {
    let VmBoot::Kernel { kernel, initrd, .. } = &spec.boot else { return Ok(()) };
    let missing = std::iter::once(kernel).chain(initrd).find(|path| !Path::new(path).is_file());
    let Some(path) = missing else { return Ok(()) };
    let why = format!("there is no file {path} on this node");
    Err(not_started(spec, why, "put it there, on every node that may run the virtual machine"))
}

/// Starts QEMU, which does not end with this process.
fn spawn(options: &QemuOptions, folder: &VmFolder, spec: &VmSpec) -> Result<Process, Error> {
    let cannot = |error: std::io::Error| {
        let why = format!("{} cannot be started: {error}", options.program.display());
        not_started(spec, why, "install QEMU (Debian: `apt-get install qemu-system-x86`)")
    };
    let log = File::create(folder.join(QEMU_LOG)).map_err(cannot)?;
    let child = Command::new(&options.program)
        .args(arguments(spec, options.emulator, &options.nbd_socket))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(cannot)?)
        .stderr(log)
        // What ends this process at a terminal is not meant for it.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(cannot)?;
    let number = i32::try_from(child.id()).expect("the kernel counts processes with an i32");
    let file =
        InstanceFile { vm: spec.disk.vm, run: spec.disk.run, disk_bus: spec.disk_bus, process: number };
    let process = folder.write_instance(&file).and_then(|()| Process::of_child(&child));
    process.map_err(|error| {
        // Nobody would find it. One that has ended already is only asked for how.
        let _ = child.kill();
        let _ = child.wait();
        cannot(error)
    })
}
