//! `spandrel volume`.

use std::fmt::Write as _;

use spandrel_shared::IopsLimit;
use spandrel_shared::size::format_size;

use crate::admin::administration::unix_ms;
use crate::admin::api::{
    self, LegStatus, Progress, VolumeCreate, VolumeCreateAnswer, VolumeDeletion, VolumeMove, VolumeResize,
    VolumeResized, VolumeSettingsChange, VolumeStatus,
};
use crate::admin::client::{Client, path_with};
use crate::arguments::{
    Output, OutputArguments, VolumeArguments, VolumeCommand, VolumeCreateArguments, VolumeDeleteArguments,
    VolumeMoveArguments, VolumeResizeArguments, VolumeSetArguments,
};
use crate::commands::{scrub_text, verify};
use crate::confirm::confirm;
use crate::failure::{EXIT_OK, Outcome};
use crate::table::{Table, count_text};
use crate::text::{copies_text, counted, json, percent, quoted, say};

/// Carries out a command about volumes.
pub fn volume(client: &Client, command: &VolumeCommand) -> Outcome {
    match command {
        VolumeCommand::Create(arguments) => create(client, arguments),
        VolumeCommand::List(arguments) => list(client, *arguments),
        VolumeCommand::Get(arguments) => get(client, arguments),
        VolumeCommand::Move(arguments) => move_to(client, arguments),
        VolumeCommand::Resize(arguments) => resize(client, arguments),
        VolumeCommand::Set(arguments) => set(client, arguments),
        VolumeCommand::Delete(arguments) => delete(client, arguments),
        VolumeCommand::Verify(arguments) => verify(client, arguments),
    }
}

fn create(client: &Client, arguments: &VolumeCreateArguments) -> Outcome {
    let create = VolumeCreate {
        name: arguments.name.clone(),
        size_bytes: arguments.size,
        copies: arguments.copies,
        owner: arguments.owner.clone(),
    };
    let answer: VolumeCreateAnswer = client.post(api::VOLUMES, &create)?;
    for warning in &answer.warnings {
        eprintln!("warning: {warning}");
    }
    say(&match arguments.output.output {
        Output::Table => {
            let volume = &answer.volume;
            let made = format!(
                "volume {} made: {}, {}\n\n",
                volume.name,
                format_size(volume.size_bytes),
                copies_text(volume.copies)
            );
            made + &render_uses(volume)
        }
        Output::Json => json(&answer),
    });
    Ok(EXIT_OK)
}

fn list(client: &Client, arguments: OutputArguments) -> Outcome {
    let volumes: Vec<VolumeStatus> = client.get(api::VOLUMES)?;
    say(&match arguments.output {
        Output::Table if volumes.is_empty() => {
            "no volumes: make one with `spandrel volume create NAME --size 1G`\n".to_owned()
        }
        Output::Table => render_list(&volumes),
        Output::Json => json(&volumes),
    });
    Ok(EXIT_OK)
}

fn get(client: &Client, arguments: &VolumeArguments) -> Outcome {
    let volume: VolumeStatus = client.get(&path_with(api::VOLUME, &arguments.name))?;
    say(&match arguments.output.output {
        Output::Table => render(&volume),
        Output::Json => json(&volume),
    });
    Ok(EXIT_OK)
}

fn move_to(client: &Client, arguments: &VolumeMoveArguments) -> Outcome {
    let path = path_with(api::VOLUME_MOVE, &arguments.name);
    let volume: VolumeStatus = client.post(&path, &VolumeMove { owner: arguments.owner.clone() })?;
    say(&match arguments.output.output {
        Output::Table => format!("volume {} is served by {}\n", volume.name, owner_text(&volume)),
        Output::Json => json(&volume),
    });
    Ok(EXIT_OK)
}

fn set(client: &Client, arguments: &VolumeSetArguments) -> Outcome {
    let path = path_with(api::VOLUME_SETTINGS, &arguments.name);
    // A unit that no I/O reaches counts as one that is as large as can be said.
    let normalized_bytes = arguments.normalized.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    let change =
        VolumeSettingsChange { iops_max: arguments.iops_max, normalized_bytes, pinned: arguments.pinned };
    let volume: VolumeStatus = client.post(&path, &change)?;
    say(&match arguments.output.output {
        Output::Table => format!(
            "clients of volume {}: {}\nit {}\n",
            volume.name,
            limit_text(volume.iops_limit),
            if volume.is_pinned {
                "stays with its owner, wherever its client is"
            } else {
                "follows its client"
            },
        ),
        Output::Json => json(&volume),
    });
    Ok(EXIT_OK)
}

/// What clients of a volume may do.
fn limit_text(limit: Option<IopsLimit>) -> String {
    match limit {
        None => "as many I/Os as they can".to_owned(),
        Some(IopsLimit { iops_max, normalized_bytes }) => format!(
            "at most {iops_max} I/Os a second at each node, each counted once for each {} that it begins",
            format_size(normalized_bytes.into())
        ),
    }
}

fn resize(client: &Client, arguments: &VolumeResizeArguments) -> Outcome {
    let path = path_with(api::VOLUME_RESIZE, &arguments.name);
    let asked = VolumeResize { size: arguments.size, dry_run: arguments.dry_run };
    let answer: VolumeResized = client.post(&path, &asked)?;
    for warning in &answer.warnings {
        eprintln!("warning: {warning}");
    }
    say(&match arguments.output.output {
        Output::Table => render_resized(&answer, arguments.dry_run),
        Output::Json => json(&answer),
    });
    Ok(EXIT_OK)
}

/// What became of a volume's size, or would.
fn render_resized(answer: &VolumeResized, dry_run: bool) -> String {
    let name = &answer.volume.name;
    let (former, size) = (format_size(answer.former_bytes), format_size(answer.size_bytes));
    if answer.former_bytes == answer.size_bytes {
        return format!("volume {name} has {size} already\n");
    }
    let mut text = match dry_run {
        true => format!("volume {name} would grow from {former} to {size}\n"),
        false => format!("volume {name} has grown from {former} to {size}\n"),
    };
    if answer.slabs > 0 {
        let mut drives = Table::new(&["DRIVE", ">SLABS"]);
        for copies in &answer.copies {
            drives.row([copies.drive.clone(), copies.slabs.to_string()]);
        }
        let comes = if dry_run { "would come" } else { "came" };
        let slabs = counted(answer.slabs, "slab");
        let _ = write!(
            text,
            "\n{slabs} {comes}, in {} each:\n\n{}",
            copies_text(answer.volume.copies),
            drives.render()
        );
    }
    if !dry_run {
        text += "\nclients that are connected see the new size when they connect anew\n";
    }
    text
}

fn delete(client: &Client, arguments: &VolumeDeleteArguments) -> Outcome {
    if arguments.dry_run {
        return preview_deletion(client, arguments);
    }
    let path = path_with(api::VOLUME, &arguments.name);
    let volume: VolumeStatus = client.get(&path)?;
    let what = format!(
        "All that stands on the volume {}, of {}, is lost.",
        volume.name,
        format_size(volume.size_bytes)
    );
    confirm(&what, &volume.name, arguments.yes)?;
    client.delete(&format!("{path}?force={}", arguments.force))?;
    say(&match arguments.output.output {
        Output::Table => format!("volume {} deleted\n", arguments.name),
        Output::Json => json(&()),
    });
    Ok(EXIT_OK)
}

/// Says what deleting a volume would do, or what stands against it.
fn preview_deletion(client: &Client, arguments: &VolumeDeleteArguments) -> Outcome {
    let deletion: VolumeDeletion = client.get(&path_with(api::VOLUME_DELETION, &arguments.name))?;
    let VolumeDeletion { volume, freed_bytes, against } = &deletion;
    match against {
        Some(error) if !arguments.force => return Err(error.clone()),
        Some(error) => eprintln!("warning: {}", error.why),
        None => {}
    }
    say(&match arguments.output.output {
        Output::Table => format!(
            "volume {} would be deleted: {}, of which {} are stored on all drives together, would be lost, and {} be free \
             for others ({} of its size)\n",
            volume.name,
            format_size(volume.size_bytes),
            format_size(volume.stored_bytes),
            format_size(*freed_bytes),
            copies_text(volume.copies)
        ),
        Output::Json => json(&deletion),
    });
    Ok(EXIT_OK)
}

/// The volumes as a table.
pub fn render_list(volumes: &[VolumeStatus]) -> String {
    let mut table =
        Table::new(&["VOLUME", ">SIZE", ">COPIES", "HEALTH", "STATUS", "OWNER", ">STORED", "RESYNC"]);
    for volume in volumes {
        table.row([
            volume.name.clone(),
            format_size(volume.size_bytes),
            volume.copies.to_string(),
            volume.status.health.to_string(),
            volume.status.operational_text(),
            owner_text(volume) + if volume.is_pinned { ", pinned" } else { "" },
            format_size(volume.stored_bytes),
            resync_of(&volume.legs)
                .map_or_else(String::new, |progress| percent(progress.done, progress.total)),
        ]);
    }
    table.render()
}

/// How far all copies that are brought up to date are together.
pub fn resync_of(legs: &[LegStatus]) -> Option<Progress> {
    let parts = legs.iter().filter_map(|leg| leg.resync);
    parts.reduce(|sum, part| Progress { done: sum.done + part.done, total: sum.total + part.total })
}

fn owner_text(volume: &VolumeStatus) -> String {
    match (&volume.owner, volume.is_serving) {
        (Some(owner), true) => owner.clone(),
        (Some(owner), false) => format!("({owner})"),
        (None, _) => String::new(),
    }
}

fn render(volume: &VolumeStatus) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<14} {value}");
    };
    line("volume", &format!("{} ({})", volume.name, volume.id));
    line("status", &volume.status.to_string());
    let grows = volume
        .grows_to_bytes
        .map_or_else(String::new, |size_bytes| format!(", growing to {}", format_size(size_bytes)));
    line("size", &format!("{} in {}{grows}", format_size(volume.size_bytes), copies_text(volume.copies)));
    line("stored", &format!("{} on all drives together", format_size(volume.stored_bytes)));
    let owner = match (&volume.owner, volume.is_serving) {
        (Some(owner), true) => format!("{owner} (epoch {})", volume.epoch),
        (Some(owner), false) => format!("{owner} (epoch {}), does not serve it now", volume.epoch),
        (None, _) => "none".to_owned(),
    };
    let owner = if volume.is_pinned { owner + "; stays, wherever the client is" } else { owner };
    line("owner", &owner);
    line("open on", volume.writer.as_deref().unwrap_or("no node, for writing"));
    let amplification = volume.write_amplification.map_or_else(
        || "nothing was written yet".to_owned(),
        |factor| format!("{factor:.3} bytes on drives for each byte written"),
    );
    line("write ampl.", &amplification);
    if volume.iops_limit.is_some() {
        line("clients", &limit_text(volume.iops_limit));
    }
    let traffic = &volume.traffic;
    let did = format!(
        "{} reads ({}), {} writes ({}) since {} took it",
        count_text(traffic.reads),
        format_size(traffic.read_bytes),
        count_text(traffic.writes),
        format_size(traffic.write_bytes),
        volume.owner.as_deref().unwrap_or("its owner"),
    );
    line("traffic", &did);
    if let Some(scrub) = &volume.scrub {
        line("scrub", &scrub_text(scrub, unix_ms()));
    }
    let mut legs = Table::new(&["DRIVE", "STATE", ">SLABS", "RESYNC"]);
    for leg in &volume.legs {
        let resync = leg.resync.map_or_else(String::new, |progress| percent(progress.done, progress.total));
        legs.row([leg.drive.clone(), leg.state.clone(), leg.slabs.to_string(), resync]);
    }
    let _ = write!(text, "\n{}\n{}", legs.render(), render_uses(volume));
    text
}

/// Where the volume is served, and ready-made lines that use it there.
fn render_uses(volume: &VolumeStatus) -> String {
    let mut text = "NBD, the same volume on each node (one client writes at a time):\n".to_owned();
    for export in &volume.exports {
        let down = if export.is_up { "" } else { "  (down)" };
        let _ = writeln!(text, "  {}  {}{down}", export.node, export.uri);
    }
    // The owner's node is the shortest way.
    let is_owner = |export: &&api::Export| Some(&export.node) == volume.owner.as_ref() && export.is_up;
    let best =
        volume.exports.iter().find(is_owner).or_else(|| volume.exports.iter().find(|export| export.is_up));
    let Some(best) = best else { return text };
    let (uri, name) = (quoted(&best.uri), quoted(&volume.name));
    let _ = write!(
        text,
        "\nready to paste:\n  \
         qemu-system-x86_64 -m 2G -accel kvm -drive file={uri},format=raw,if=virtio,cache=none,discard=unmap,\
         file.reconnect-delay=60\n  \
         nbdcopy {uri} {name}.img\n  \
         touch {name}.raw && nbdfuse {name}.raw {uri}\n  \
         fio --name={name} --ioengine=nbd --uri={uri} --rw=randread --bs=4k --iodepth=8 --time_based --runtime=10\n"
    );
    text
}

#[cfg(test)]
#[path = "volume_tests.rs"]
pub(crate) mod tests;
