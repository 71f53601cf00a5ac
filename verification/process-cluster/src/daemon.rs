//! A process of the program that serves, from outside: its start, what it says, its death, and the commands against
//! it.
//!
//! Invariants:
//! - When it is dropped, its process is dead.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::program::Program;

/// How much memory nodes have for virtual machines; 0 for none.
pub(crate) const VM_MEMORY_VARIABLE: &str = "SPANDREL_VM_MEMORY";

/// How long a process may take until it serves.
const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// How long something may take to become what it should be.
const HEALING_TIME_MAX: Duration = Duration::from_secs(120);

/// What begins the line that says that a process serves.
const READY_LINE: &str = "ready:";

/// A process that serves in a directory, or has served.
pub struct Daemon {
    program: Program,
    directory: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The network namespace in which it runs, and the commands against it, if it is not this process's.
    namespace: Option<String>,
    running: Option<Running>,
    log: Arc<Mutex<String>>,
}

struct Running {
    child: Arc<Mutex<Child>>,
    readers: Vec<JoinHandle<()>>,
}

/// Kills a cluster's process, from any thread and at any moment.
#[derive(Clone)]
pub struct KillSwitch {
    child: Arc<Mutex<Child>>,
}

impl KillSwitch {
    /// The process dies at once, by SIGKILL.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("nobody panics with the lock");
        // That it is dead already is as good.
        let _ = child.kill();
    }
}

/// What a command has said, and how it ended.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit status; `None` if it was killed.
    pub status: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl CommandOutput {
    /// Standard output as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

impl Daemon {
    /// A process that is to run the program with `--dir DIRECTORY` and these arguments.
    pub fn new(program: Program, directory: &Path, arguments: Vec<String>) -> Self {
        Self {
            program,
            directory: directory.to_owned(),
            arguments,
            // To find out what runs virtual machines takes processor time, which most tests have better uses for.
            environment: vec![(VM_MEMORY_VARIABLE.to_owned(), "0".to_owned())],
            namespace: None,
            running: None,
            log: Arc::default(),
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets a variable of its environment from the next start on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Gives the process an option with its value from the next start on, in place of what it had.
    pub fn set_option(&mut self, option: &str, value: &str) {
        if let Some(index) = self.arguments.iter().position(|argument| argument == option) {
            self.arguments.drain(index..index + 2);
        }
        self.arguments.extend([option.to_owned(), value.to_owned()]);
    }

    /// Lets it run in a network namespace from the next start on, and all commands against it.
    pub fn set_namespace(&mut self, name: String) {
        self.namespace = Some(name);
    }

    /// Starts the process and waits until it serves. The former one must be dead.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn start(&mut self) {
        let is_ready = self.begin();
        self.await_ready(&is_ready);
    }

    /// Starts the process. What is received, once it serves.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn begin(&mut self) -> Receiver<()> {
        self.reap();
        let mut child = self
            .command()
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let (ready, is_ready) = channel();
        let readers = [
            child.stdout.take().map(|pipe| {
                self.collect(pipe, move |line| {
                    if line.starts_with(READY_LINE) {
                        let _ = ready.send(());
                    }
                })
            }),
            child.stderr.take().map(|pipe| self.collect(pipe, |_| {})),
        ];
        let readers = readers.into_iter().flatten().collect();
        self.running = Some(Running { child: Arc::new(Mutex::new(child)), readers });
        is_ready
    }

    /// Waits until the process serves.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_ready(&self, is_ready: &Receiver<()>) {
        match is_ready.recv_timeout(READY_TIME_MAX) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the process has ended:\n{}", self.log()),
            Err(RecvTimeoutError::Timeout) => panic!("the process does not serve:\n{}", self.log()),
        }
    }

    /// Takes what the process says into the log, line by line.
    fn collect(
        &self,
        pipe: impl Read + Send + 'static,
        mut look: impl FnMut(&str) + Send + 'static,
    ) -> JoinHandle<()> {
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                look(&line);
                let mut log = log.lock().expect("nobody panics with the lock");
                log.push_str(&line);
                log.push('\n');
            }
        })
    }

    /// All that the processes have said, and what the last one has logged.
    pub fn log(&self) -> String {
        let mut text = self.log.lock().expect("nobody panics with the lock").clone();
        let logs = std::fs::read_dir(self.directory.join("log")).into_iter().flatten().flatten();
        for entry in logs {
            if let Ok(logged) = std::fs::read_to_string(entry.path()) {
                text.push_str(&format!("--- {}\n{logged}", entry.path().display()));
            }
        }
        text
    }

    /// Kills the process, now or later.
    ///
    /// # Panics
    ///
    /// If no process was started.
    pub fn kill_switch(&self) -> KillSwitch {
        let running = self.running.as_ref().expect("a process that was started");
        KillSwitch { child: Arc::clone(&running.child) }
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        let Some(running) = &self.running else { return false };
        let mut child = running.child.lock().expect("nobody panics with the lock");
        child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Kills the process by SIGKILL, if it runs, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(running) = &self.running {
            KillSwitch { child: Arc::clone(&running.child) }.kill();
        }
        self.reap();
    }

    /// Sends the process a signal: `-STOP` stops it in the middle of whatever it does, `-CONT` lets it go on.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn signal(&self, signal: &str) {
        let running = self.running.as_ref().expect("a process that was started");
        let child = running.child.lock().expect("nobody panics with the lock");
        let told = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "the process is there to be told");
    }

    /// Ends the process in order, by SIGTERM, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn stop(&mut self) {
        self.signal("-TERM");
        self.await_stopped();
    }

    /// Waits until a process is gone that was told to end.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn await_stopped(&mut self) {
        let running = self.running.take().expect("a process that was started");
        let status = running.child.lock().expect("nobody panics with the lock").wait();
        running.readers.into_iter().for_each(|reader| drop(reader.join()));
        let status = status.expect("it is a child of this process");
        assert!(status.success(), "the process did not end well ({status}):\n{}", self.log());
    }

    /// Waits for a process that is dead or about to be.
    fn reap(&mut self) {
        let Some(running) = self.running.take() else { return };
        let mut child = running.child.lock().expect("nobody panics with the lock");
        let _ = child.wait();
        drop(child);
        running.readers.into_iter().for_each(|reader| drop(reader.join()));
    }

    fn command(&self) -> Command {
        let mut command = match &self.namespace {
            None => Command::new(self.program.path()),
            Some(name) => {
                // It becomes the program, which so is the child of this process.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(self.program.path());
                command
            }
        };
        command.arg("--dir").arg(&self.directory);
        command
    }

    /// Runs a command against it.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with_input(arguments, "")
    }

    /// The same, with what it reads.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        // One that does not read it may have ended.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("the program can be waited for");
        CommandOutput {
            status: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Begins a command that goes on by itself, and reads what is written to its standard input. What it prints goes to the file `shown`.
    pub fn begin_command(&self, arguments: &[&str], shown: &Path) -> Child {
        let shown = File::create(shown).expect("a file can be made");
        let errors = shown.try_clone().expect("a file can be open twice");
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(shown).stderr(errors);
        command.spawn().expect("the program can be started")
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn must_run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.run(arguments);
        assert_eq!(output.status, Some(0), "{arguments:?}: {output:#?}\n{}", self.log());
        output
    }

    /// Runs a command that changes the cluster's state, and that must succeed: again, as its error says, as long as those
    /// who keep the state have no leader, since a busy machine may have them elect one at any time.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn must_run_once_led(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.run_again_while("no leader", arguments);
        assert_eq!(output.status, Some(0), "{arguments:?}: {output:#?}\n{}", self.log());
        output
    }

    /// Runs a command, and again as long as the cluster's state does not answer: one that may have been carried out, and
    /// then does and says the same once more.
    pub fn run_once_available(&self, arguments: &[&str]) -> CommandOutput {
        self.run_again_while("STATE_UNAVAILABLE", arguments)
    }

    /// Runs a command again as long as it fails with this error.
    pub fn run_again_while(&self, error: &str, arguments: &[&str]) -> CommandOutput {
        let deadline = Instant::now() + HEALING_TIME_MAX;
        loop {
            let output = self.run(arguments);
            if !output.errors.contains(error) || Instant::now() >= deadline {
                return output;
            }
            // tidy-allow(sleep): the condition is other processes', which can only be asked again.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a command, which may fail meanwhile, says in JSON what is asked for.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_answer(
        &self,
        arguments: &[&str],
        what: &str,
        condition: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let deadline = Instant::now() + HEALING_TIME_MAX;
        loop {
            let output = self.run(arguments);
            let answer = serde_json::from_str(&output.output).unwrap_or_default();
            if output.status == Some(0) && condition(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "not {what}: {output:#?}\n{}", self.log());
            // tidy-allow(sleep): the condition is another process's, which can only be asked again.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("what the process in {} said:\n{}", self.directory.display(), self.log());
        }
    }
}

/// A new directory: in memory if that can be had, since it is the killed process that loses what it
/// had not flushed, and no machine's power fails here.
pub fn new_directory() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("spandrel-test-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).expect("a directory can be made")
}
