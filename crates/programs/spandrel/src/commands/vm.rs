//! `spandrel vm`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_cluster::VmBoot;
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use super::node::warn;
use super::vm_console::console;
use super::vm_image::DiskImage;
use crate::admin::administration::unix_ms;
use crate::admin::api::{self, VmCreate, VmHostStatus, VmMigrate, VmState, VmStatus, VmStop};
use crate::admin::client::{Client, path_with};
use crate::admin::vms::WHERE_NONE_RUNS_VMS;
use crate::arguments::{
    Output, OutputArguments, VmArguments, VmCommand, VmCreateArguments, VmDeleteArguments,
    VmMigrateArguments, VmStartArguments, VmStopArguments,
};
use crate::confirm::confirm;
use crate::failure::{EXIT_OK, Outcome};
use crate::table::Table;
use crate::text::{age_text, counted, json, quoted, say};

/// How often it is looked how a virtual machine is that is waited for.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Carries out a command about virtual machines.
pub fn vm(client: &Client, command: &VmCommand) -> Outcome {
    match command {
        VmCommand::Create(arguments) => create(client, arguments),
        VmCommand::List(arguments) => list(client, *arguments),
        VmCommand::Hosts(arguments) => hosts(client, *arguments),
        VmCommand::Get(arguments) => get(client, arguments),
        VmCommand::Start(arguments) => start(client, arguments),
        VmCommand::Stop(arguments) => stop(client, arguments),
        VmCommand::Migrate(arguments) => migrate(client, arguments),
        VmCommand::Delete(arguments) => delete(client, arguments),
        VmCommand::Console(arguments) => console(client, &arguments.name),
    }
}

fn create(client: &Client, arguments: &VmCreateArguments) -> Outcome {
    let boot = match &arguments.kernel {
        None => VmBoot::Disk,
        Some(kernel) => VmBoot::Kernel {
            kernel: path_on_nodes(kernel)?,
            initrd: arguments.initrd.as_deref().map(path_on_nodes).transpose()?,
            arguments: arguments.append.clone(),
        },
    };
    // What is wrong with it is said before anything is made.
    let image = arguments.disk_image.as_deref().map(|file| DiskImage::open(client, file, &arguments.volume));
    let image = image.transpose()?;
    let create = VmCreate {
        name: arguments.name.clone(),
        volume: arguments.volume.clone(),
        processors: arguments.vcpus,
        memory_bytes: arguments.memory,
        boot,
        disk_bus: arguments.disk_bus.into(),
        priority: arguments.priority.into(),
    };
    let vm: VmStatus = client.post(api::VMS, &create)?;
    if let Some(image) = image {
        // Its disk would be neither what it was nor what it was to be.
        image.copy(|| client.delete(&path_with(api::VM, &vm.name)))?;
    }
    say(&match arguments.output.output {
        Output::Table => format!(
            "virtual machine {} made: {}, {} of memory, disk {}\nstart it with `spandrel vm start {}`\n",
            vm.name,
            counted(vm.processors.into(), "processor"),
            format_size(vm.memory_bytes),
            vm.volume,
            quoted(&vm.name)
        ),
        Output::Json => json(&vm),
    });
    Ok(EXIT_OK)
}

/// The whole path of a file that nodes are to find.
fn path_on_nodes(path: &Path) -> Result<String, Error> {
    let whole = std::path::absolute(path).map_err(|error| {
        Error::new(
            "VM_INVALID",
            "the virtual machine cannot be made",
            format!("{} cannot be made a whole path: {error}", path.display()),
            "give the file's whole path",
        )
    })?;
    let whole = whole.display().to_string();
    if !Path::new(&whole).is_file() {
        warn(&[format!("there is no file {whole} here; each node that is to run it needs one there")]);
    }
    Ok(whole)
}

fn list(client: &Client, arguments: OutputArguments) -> Outcome {
    let vms: Vec<VmStatus> = client.get(api::VMS)?;
    say(&match arguments.output {
        Output::Table if vms.is_empty() => {
            "no virtual machines: make one with `spandrel vm create NAME --volume VOLUME`\n".to_owned()
        }
        Output::Table => render_list(&vms),
        Output::Json => json(&vms),
    });
    Ok(EXIT_OK)
}

fn render_list(vms: &[VmStatus]) -> String {
    let mut table = Table::new(&["NAME", "STATE", "NODE", "DISK", ">VCPUS", ">MEMORY", "PRIORITY"]);
    for vm in vms {
        table.row([
            vm.name.clone(),
            vm.state.to_string(),
            vm.node.clone().unwrap_or_default(),
            vm.volume.clone(),
            vm.processors.to_string(),
            format_size(vm.memory_bytes),
            vm.priority.to_string(),
        ]);
    }
    let mut text = table.render();
    for vm in vms {
        if let Some(why) = &vm.why {
            let _ = writeln!(text, "{} is {}: {why}", vm.name, vm.state);
        }
    }
    text
}

fn hosts(client: &Client, arguments: OutputArguments) -> Outcome {
    let hosts: Vec<VmHostStatus> = client.get(api::VM_HOSTS)?;
    say(&match arguments.output {
        Output::Table if hosts.is_empty() => {
            format!("no node that is alive runs virtual machines: {WHERE_NONE_RUNS_VMS}\n")
        }
        Output::Table => render_hosts(&hosts),
        Output::Json => json(&hosts),
    });
    Ok(EXIT_OK)
}

fn render_hosts(hosts: &[VmHostStatus]) -> String {
    let mut table = Table::new(&["NODE", "RUN BY", ">MEMORY", ">LEFT", ">MACHINES", ""]);
    for host in hosts {
        table.row([
            host.node.clone(),
            host.accelerator.clone(),
            format_size(host.memory_bytes),
            format_size(host.memory_left_bytes),
            host.vms.len().to_string(),
            if host.is_in_maintenance { "in maintenance" } else { "" }.to_owned(),
        ]);
    }
    table.render()
}

fn get(client: &Client, arguments: &VmArguments) -> Outcome {
    let vm: VmStatus = client.get(&path_with(api::VM, &arguments.name))?;
    say(&match arguments.output.output {
        Output::Table => render(&vm, unix_ms()),
        Output::Json => json(&vm),
    });
    Ok(EXIT_OK)
}

/// Everything about a virtual machine.
fn render(vm: &VmStatus, now_unix_ms: u64) -> String {
    let mut text = format!("{} is {}", vm.name, vm.state);
    if let Some(why) = &vm.why {
        let _ = write!(text, ": {why}");
    }
    let _ = writeln!(text, "\n");
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    if let Some(node) = &vm.node {
        let since = vm.node_since_unix_ms.map(|since| age_text(now_unix_ms.saturating_sub(since)));
        let because = vm.node_because.clone().unwrap_or_default();
        fact("node", format!("{node}, for {}: {because}", since.unwrap_or_default()));
    }
    if let Some(accelerator) = &vm.accelerator {
        fact("runs by", accelerator.clone());
    }
    if let Some(to) = &vm.moves_to {
        fact("moves to", to.clone());
    }
    fact("disk", format!("volume {}, by {}", vm.volume, vm.disk_bus));
    fact("processors", vm.processors.to_string());
    fact("memory", format_size(vm.memory_bytes));
    fact("priority", vm.priority.to_string());
    match &vm.boot {
        VmBoot::Disk => fact("starts", "from its disk".to_owned()),
        VmBoot::Kernel { kernel, initrd, arguments } => {
            fact("kernel", kernel.clone());
            if let Some(initrd) = initrd {
                fact("initrd", initrd.clone());
            }
            fact("append", arguments.clone());
        }
    }
    fact("claimed", counted(vm.runs, "time"));
    text
}

fn start(client: &Client, arguments: &VmStartArguments) -> Outcome {
    let _: VmStatus = client.post(&path_with(api::VM_START, &arguments.name), &())?;
    let time_max = Duration::from_secs(arguments.timeout);
    let waited = wait_for(client, &arguments.name, time_max, |state| state == VmState::Running)?;
    let vm = waited.map_err(|vm| {
        Error::new(
            "VM_NOT_RUNNING",
            format!("the virtual machine {} does not run yet", vm.name),
            format!("it is {} after {} s: {}", vm.state, arguments.timeout, vm.why.unwrap_or_default()),
            format!(
                "it is tried on; see `spandrel vm get {}`, or end that with `spandrel vm stop {}`",
                vm.name, vm.name
            ),
        )
    })?;
    say(&match arguments.output.output {
        Output::Table => format!(
            "virtual machine {} runs on {}\nits console: `spandrel vm console {}`\n",
            vm.name,
            vm.node.clone().unwrap_or_default(),
            quoted(&vm.name)
        ),
        Output::Json => json(&vm),
    });
    Ok(EXIT_OK)
}

fn stop(client: &Client, arguments: &VmStopArguments) -> Outcome {
    let stop = VmStop { at_once: arguments.force };
    let _: VmStatus = client.post(&path_with(api::VM_STOP, &arguments.name), &stop)?;
    let time_max = Duration::from_secs(arguments.timeout);
    let waited = wait_for(client, &arguments.name, time_max, |state| state == VmState::Off)?;
    let vm = waited.map_err(|vm| {
        let next = match arguments.force {
            true => format!("see `spandrel vm get {}`: its node ends it when it can be reached", vm.name),
            false => format!(
                "shut its guest down from within, or end it with `spandrel vm stop --force {}`",
                vm.name
            ),
        };
        let why = match arguments.force {
            true => format!("{} s were not enough", arguments.timeout),
            false => format!("its guest was asked to shut down, and has not within {} s", arguments.timeout),
        };
        Error::new("VM_NOT_OFF", format!("the virtual machine {} is not off yet", vm.name), why, next)
    })?;
    say(&match arguments.output.output {
        Output::Table => format!("virtual machine {} is off\n", vm.name),
        Output::Json => json(&vm),
    });
    Ok(EXIT_OK)
}

fn migrate(client: &Client, arguments: &VmMigrateArguments) -> Outcome {
    let migrate = VmMigrate { to: arguments.to.clone() };
    let begun: VmStatus = client.post(&path_with(api::VM_MIGRATE, &arguments.name), &migrate)?;
    let time_max = Duration::from_secs(arguments.timeout);
    let waited = wait_for(client, &arguments.name, time_max, |state| state != VmState::Moving)?;
    let refuse = |vm: &VmStatus, why: String, next: String| {
        Err(Error::new("VM_NOT_MOVED", format!("the virtual machine {} has not moved", vm.name), why, next))
    };
    let vm = match waited {
        Ok(vm) => vm,
        Err(vm) => {
            let why = format!("{} s were not enough", arguments.timeout);
            return refuse(&vm, why, format!("it moves on; see `spandrel vm get {}`", vm.name));
        }
    };
    let wanted = begun.moves_to.or(begun.node);
    if vm.node != wanted {
        let node = vm.node.clone().unwrap_or_default();
        let next =
            format!("see the logs of both nodes, and try again with `spandrel vm migrate {}`", vm.name);
        return refuse(&vm, format!("it runs on {node}, as before"), next);
    }
    say(&match arguments.output.output {
        Output::Table => {
            format!("virtual machine {} runs on {}\n", vm.name, vm.node.clone().unwrap_or_default())
        }
        Output::Json => json(&vm),
    });
    Ok(EXIT_OK)
}

/// Waits until a virtual machine is as it should be. Inside, how it is if it is not so in time.
fn wait_for(
    client: &Client,
    name: &str,
    time_max: Duration,
    is_meant: impl Fn(VmState) -> bool,
) -> Result<Result<VmStatus, VmStatus>, Error> {
    let (begun, mut last_why) = (Instant::now(), None);
    let spinner = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}  {elapsed}");
    spinner.set_style(style.expect("the template is well-formed"));
    loop {
        let mut vm: VmStatus = client.watch(&path_with(api::VM, name))?;
        if is_meant(vm.state) {
            spinner.finish_and_clear();
            return Ok(Ok(vm));
        }
        // While it is tried once more, the reason is still what was said before.
        vm.why = vm.why.or(last_why);
        if begun.elapsed() >= time_max {
            spinner.finish_and_clear();
            return Ok(Err(vm));
        }
        spinner.set_message(match &vm.why {
            Some(why) => format!("{} is {}: {why}", vm.name, vm.state),
            None => format!("{} is {}", vm.name, vm.state),
        });
        spinner.tick();
        last_why = vm.why;
        client.pause(LOOK_INTERVAL);
    }
}

fn delete(client: &Client, arguments: &VmDeleteArguments) -> Outcome {
    let vm: VmStatus = client.get(&path_with(api::VM, &arguments.name))?;
    // Nobody is asked to confirm what is refused then.
    if vm.state != VmState::Off {
        return Err(Error::new(
            "VM_NOT_OFF",
            format!("the virtual machine {} is not deleted", vm.name),
            format!("it is {}", vm.state),
            format!("stop it with `spandrel vm stop {}` first", vm.name),
        ));
    }
    let what = format!("The virtual machine {} goes; volume {}, its disk, stays.", vm.name, vm.volume);
    confirm(&what, &vm.name, arguments.yes)?;
    client.delete(&path_with(api::VM, &vm.name))?;
    say(&format!("virtual machine {} deleted; volume {} stays\n", vm.name, vm.volume));
    Ok(EXIT_OK)
}

#[cfg(test)]
#[path = "vm_tests.rs"]
mod tests;
