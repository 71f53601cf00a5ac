//! `spandrel drive clean`: making a drive empty that carries something.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_inspect::{DriveIdentity, describe_path, identify_path};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::admin::api::{self, DriveStatus};
use crate::admin::client::Client;
use crate::arguments::DriveCleanArguments;
use crate::confirm::confirm;
use crate::device::System;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::local::settings::Settings;
use crate::server::settings::ServerSettings;
use crate::text::say;
use crate::wipe::Wiping;

/// Wipes a drive.
pub fn clean(directory: &Directory, arguments: &DriveCleanArguments) -> Outcome {
    let path = std::path::absolute(&arguments.path)
        .map_err(|error| system_error(format!("{} is not cleaned", arguments.path.display()), &error))?;
    let system = System::here();
    check_is_no_drive_of(directory, &path)?;
    let wiping = Wiping::begin(&path, &system)?;
    let identity = identify_path(&path).ok().flatten();
    let what = describe(directory, &path, &system, &wiping, identity.as_ref());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if arguments.dry_run {
        say(&format!("{what}\nit would be wiped\n"));
        return Ok(EXIT_OK);
    }
    confirm(&format!("{what}\nAll of it is lost."), &name, arguments.yes)?;
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(wiping.size_bytes())
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {percent:>3} % discarded");
    bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
    let is_discarded = wiping.discard(|done| bar.set_position(done));
    bar.finish_and_clear();
    wiping.overwrite(&wiping.regions(identity.as_ref()))?;
    let how = match is_discarded {
        true => "all of it was discarded",
        false => "its start and end were overwritten; what stands between may still be read from it",
    };
    let path = path.display();
    say(&format!("{path} is empty: {how}\n`spandrel drive add {path}` gives it to the pool\n"));
    Ok(EXIT_OK)
}

/// What would be lost, in words.
fn describe(
    directory: &Directory,
    path: &Path,
    system: &System,
    wiping: &Wiping,
    identity: Option<&DriveIdentity>,
) -> String {
    let mut text = format!("{} has {}", path.display(), format_size(wiping.size_bytes()));
    let partitions = system.partitions(path);
    if !partitions.is_empty() {
        text += &format!(" and the partitions {}", partitions.join(", "));
    }
    text += "; ";
    let Some(DriveIdentity { cluster, node, drive, .. }) = identity else {
        return text + &describe_path(path).unwrap_or_else(|| "what it carries cannot be read".to_owned());
    };
    // The names are only known where a cluster is there to be asked.
    let known = Client::new(directory.clone()).ok().and_then(|client| {
        let drives: Vec<DriveStatus> = client.get(api::DRIVES).ok()?;
        drives.into_iter().find(|known| known.id == Some(*drive)).map(|known| known.name)
    });
    text += &match known {
        Some(name) => {
            format!("it is the drive {name} ({drive}) of the cluster in {}", directory.path().display())
        }
        None => format!("it is the drive {drive} of node {node} of the Spandrel cluster {cluster}"),
    };
    text + ", and holds copies of its volumes"
}

/// Refuses a drive that the node or the cluster in `directory` takes up when it starts.
fn check_is_no_drive_of(directory: &Directory, path: &Path) -> Result<(), Error> {
    // As the device or file that it is, by whatever name.
    let canonical = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let wanted = canonical(path);
    if !drives_of(directory).iter().any(|known| canonical(known) == wanted) {
        return Ok(());
    }
    Err(Error::new(
        "DRIVE_OF_NODE",
        format!("{} is not cleaned", path.display()),
        format!(
            "it is a drive of the node in {}, which takes it up at each start",
            directory.path().display()
        ),
        "take the node out of the cluster first (`spandrel node remove`, asked on another server), and delete its \
         directory",
    ))
}

/// The drives that whatever is in a directory has.
fn drives_of(directory: &Directory) -> Vec<PathBuf> {
    if let Ok(settings) = ServerSettings::read(directory) {
        return settings.drives.iter().map(PathBuf::from).collect();
    }
    let Ok(Some(settings)) = Settings::read(directory.path()) else { return Vec::new() };
    let names: Vec<String> = settings.drive_names().collect();
    let of = |node: &str| names.iter().map(|drive| directory.drive_file(node, drive)).collect::<Vec<_>>();
    settings.nodes.iter().flat_map(|node| of(&node.name)).collect()
}
