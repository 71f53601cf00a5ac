//! The program `spandrel`: a cluster on one machine, and the commands that ask it.
//!
//! Reading order: [`arguments`] (what can be asked for), [`reach`] (of whom), [`local`] (running a cluster of several nodes in this
//! process, each a [`running_node`] of one or several [`shard_thread`]s with its [`node_state`]), [`server`] (running one node as a server of its own),
//! [`admin`] (what a cluster can be asked), [`commands`]
//! (asking it), [`demo`] and [`study`] (clusters made for one command, see [`temporary_cluster`]).
//!
//! Invariants:
//! - What a command refuses it refuses before it changes anything, with an error that says what,
//!   why, and what to do next.
//! - The control thread never waits for a node's thread without a bound, and a node's thread never
//!   for the control thread.

mod admin;
mod arguments;
mod commands;
mod confirm;
mod cores;
mod demo;
mod device;
mod directory;
mod failure;
mod interrupt;
mod local;
mod log;
mod node_state;
mod notify;
mod open_files;
mod program;
mod random;
mod reach;
mod running_node;
mod server;
mod shard_thread;
mod shared_disk;
mod study;
mod table;
mod temporary_cluster;
mod text;
mod vm_hosting;
mod wipe;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};

// Tests may be built together with the simulator, which plants bugs; what people run may not.
#[cfg(not(debug_assertions))]
const _: () = assert!(!spandrel_shared::canary::CAN_PLANT, "build the program alone, without the simulator");
use crate::failure::{EXIT_OK, EXIT_USAGE, Outcome};
use crate::reach::Reach;

/// The data path takes and gives back memory with every operation, some of it in large pieces. The C library gives what
/// lies at the heap's end back to the kernel at once, and each piece taken again costs a page fault for each of its pages.
#[global_allocator]
static ALLOCATOR: spandrel_platform_linux::Allocator = spandrel_platform_linux::Allocator;

fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => {
            let outcome = run(arguments);
            interrupt::leave_to_interruption();
            failure::exit_code(outcome)
        }
        Err(error) => {
            // Help and version come this way too, and are no errors.
            let status = if error.use_stderr() { EXIT_USAGE } else { EXIT_OK };
            let _ = error.print();
            ExitCode::from(status)
        }
    }
}

fn run(arguments: Arguments) -> Outcome {
    let Arguments { reach, command } = arguments;
    let reach = Reach::new(reach);
    let (directory, client) = (|| reach.directory(), || reach.client());
    match &command {
        Command::Up(up) => local::up::run(directory()?, up),
        Command::Status(arguments) => commands::status(&client()?, *arguments),
        Command::Top(arguments) => commands::top(&client()?, *arguments),
        Command::Cluster(command) => commands::cluster(&reach, command),
        Command::Witness(command) => commands::witness(&reach, command),
        Command::Access(command) => commands::access(&client()?, command),
        Command::Volume(command) => commands::volume(&client()?, command),
        Command::Vm(command) => commands::vm(&client()?, command),
        Command::Node(command) => commands::node(&reach, command),
        Command::Drive(command) => commands::drive(&reach, command),
        Command::Pool(command) => commands::pool(&client()?, command),
        Command::Fault(command) => commands::fault(&client()?, command),
        Command::Explain(command) => commands::explain(&client()?, command),
        Command::Scrub(arguments) => commands::scrub(&client()?, arguments),
        Command::Fleet(arguments) => commands::fleet(&reach, arguments),
        Command::Demo(arguments) => demo::run(*arguments),
        Command::Completions(arguments) => {
            clap_complete::generate(
                arguments.shell,
                &mut Arguments::command(),
                "spandrel",
                &mut std::io::stdout(),
            );
            Ok(EXIT_OK)
        }
    }
}

/// What stands before the location of each drive: nothing, except in tests.
fn drive_prefix() -> String {
    if cfg!(feature = "test-faults") {
        return std::env::var("SPANDREL_TEST_DRIVE_PREFIX").unwrap_or_default();
    }
    String::new()
}
