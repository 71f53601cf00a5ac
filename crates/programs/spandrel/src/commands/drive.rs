//! `spandrel drive`.

use spandrel_shared::size::format_size;

use crate::admin::api::{self, DriveAdd, DriveAdded, DriveStatus};
use crate::admin::client::Client;
use crate::arguments::{DriveAddArguments, DriveCommand, Output, OutputArguments};
use crate::failure::{EXIT_DAMAGE, EXIT_OK, Outcome, render, system_error};
use crate::table::Table;
use crate::text::{json, percent, say};

/// Carries out a command about drives. `client` is made only if the cluster has to be asked.
pub fn drive(
    client: impl FnOnce() -> Result<Client, spandrel_shared::Error>,
    command: &DriveCommand,
) -> Outcome {
    match command {
        DriveCommand::List(arguments) => list(&client()?, *arguments),
        DriveCommand::Add(arguments) => add(&client()?, arguments),
        DriveCommand::Inspect(arguments) => {
            let outcome = arguments.run(&mut std::io::stdout().lock())?;
            Ok(if outcome.exit_status() == 0 { EXIT_OK } else { EXIT_DAMAGE })
        }
    }
}

fn list(client: &Client, arguments: OutputArguments) -> Outcome {
    let drives: Vec<DriveStatus> = client.get(api::DRIVES)?;
    say(&match arguments.output {
        Output::Table => format!("{}\n{}", render_list(&drives), render_locations(&drives)),
        Output::Json => json(&drives),
    });
    Ok(EXIT_OK)
}

/// Gives drives to the pool, one after the other. One that is refused keeps none of the others out.
fn add(client: &Client, arguments: &DriveAddArguments) -> Outcome {
    let mut refused = None;
    for path in &arguments.paths {
        let added = std::path::absolute(path)
            .map_err(|error| system_error(format!("{} cannot become a drive", path.display()), &error))
            .and_then(|path| client.post(api::DRIVES, &DriveAdd { path: path.display().to_string() }));
        match added {
            Ok(DriveAdded { name, size_bytes }) => {
                say(&format!("drive {name} added: {}\n", format_size(size_bytes)));
            }
            Err(error) => {
                if let Some(earlier) = refused.replace(error) {
                    eprint!("{}", render(&earlier));
                }
            }
        }
    }
    refused.map_or(Ok(EXIT_OK), Err)
}

/// Where the drives are: whole paths, however long, since `drive inspect` takes them.
fn render_locations(drives: &[DriveStatus]) -> String {
    let line = |drive: &DriveStatus| {
        let location = drive.location.as_deref().unwrap_or("(its node is down, or it is missing)");
        format!("{}  {location}\n", drive.name)
    };
    drives.iter().map(line).collect()
}

/// The drives as a table, and below it why some are not used.
pub fn render_list(drives: &[DriveStatus]) -> String {
    let heads = [
        "DRIVE",
        "HEALTH",
        "STATUS",
        ">SIZE",
        ">PROMISED",
        ">USED",
        ">WRITTEN",
        ">FLUSHES",
        ">DAMAGED",
        ">HEALED",
    ];
    let mut table = Table::new(&heads);
    for drive in drives {
        table.row([
            drive.name.clone(),
            drive.status.health.to_string(),
            drive.status.operational_text(),
            format_size(drive.size_bytes),
            percent(drive.promised_bytes, drive.promisable_bytes),
            format_size(drive.used_bytes),
            format_size(drive.written_bytes),
            drive.flushes.to_string(),
            drive.damage_found.to_string(),
            drive.blocks_healed.to_string(),
        ]);
    }
    let mut text = table.render();
    for drive in drives {
        if let Some(failure) = &drive.failure {
            text += &format!("{} is not used: {failure}\n", drive.name);
        }
    }
    text
}
