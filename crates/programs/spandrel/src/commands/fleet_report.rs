//! `spandrel fleet report`, `import` and `profiles`: what needs no cluster.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use spandrel_fleet::{ImportArguments, Profile, ProfilesArguments, ReportArguments, Spread, count_text};
use spandrel_report::{Economics, ReportOptions, render};
use spandrel_results::{MeasuredCell, MeasuredRun, Measurement, import, read_run, write_run};
use spandrel_shared::Error;
use spandrel_shared::calendar::date_text;
use spandrel_shared::size::format_size;

use crate::failure::{EXIT_OK, Outcome};
use crate::program::VERSION;
use crate::table::Table;
use crate::text::{counted, say};

/// Writes the report of runs.
pub fn report(arguments: &ReportArguments) -> Outcome {
    let mut runs = Vec::new();
    for name in &arguments.runs {
        let run = read_run(name)?;
        if run.cells.iter().all(|cell| cell.measurements.is_empty()) {
            return Err(Error::new(
                "FLEET_RESULTS_EMPTY",
                format!("{name} cannot be reported"),
                "nothing of it was measured",
                "go on with it: `spandrel fleet run --resume DIR`",
            ));
        }
        runs.push(run);
    }
    let economics = Economics {
        node_price: arguments.node_price,
        node_rack_units: arguments.node_rack_units,
        drive_endurance_tbw: arguments.drive_endurance,
        warranty_years: Some(arguments.warranty_years),
    };
    write_report(&arguments.html, &runs, &economics, arguments.title.clone())?;
    say(&format!("report of {}: {}\n", counted(runs.len() as u64, "run"), arguments.html.display()));
    Ok(EXIT_OK)
}

/// Writes the report of runs to a file.
pub fn write_report(
    path: &Path,
    runs: &[MeasuredRun],
    economics: &Economics,
    title: Option<String>,
) -> Result<(), Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = ReportOptions {
        title,
        made: date_text(u64::try_from(since.as_millis()).unwrap_or(0)),
        made_by: format!("spandrel {VERSION}"),
        economics: *economics,
    };
    fs::write(path, render(runs, &options)).map_err(|error| {
        Error::new(
            "FLEET_REPORT_UNWRITABLE",
            format!("the report cannot be written to {}", path.display()),
            error.to_string(),
            "name another file with --html; what was measured stays where it is",
        )
    })
}

/// Reads results of others.
pub fn import_results(arguments: &ImportArguments) -> Outcome {
    let mut run = import(&arguments.name, &arguments.files)?;
    run.nodes = arguments.nodes;
    run.drives = arguments.drives;
    write_run(&arguments.to, &run)?;
    say(&render_cells(&run));
    say(&format!(
        "imported: {}; for a report: `spandrel fleet report {0} --html FILE`\n",
        arguments.to.display()
    ));
    Ok(EXIT_OK)
}

/// Lists the profiles, or prints one.
pub fn profiles(arguments: &ProfilesArguments) -> Outcome {
    if let Some(name) = &arguments.profile {
        // An unknown one is refused with the names that there are.
        let profile = Profile::find(name)?;
        say(Profile::text(&profile.name).unwrap_or_default());
        return Ok(EXIT_OK);
    }
    for name in Profile::shipped() {
        let profile = Profile::find(name)?;
        say(&format!(
            "{name:<18}{}\n{:<18}{} VMs, each with {}; measured {}\n",
            profile.title,
            "",
            profile.vms,
            format_size(profile.working_set),
            if profile.repeat == 1 { "once".to_owned() } else { format!("{} times", profile.repeat) }
        ));
    }
    Ok(EXIT_OK)
}

/// A line for each cell, with means over its repeats.
pub fn render_cells(run: &MeasuredRun) -> String {
    let heads = [
        ">BLOCK",
        ">WRITE %",
        ">OUTST.",
        ">IOPS",
        ">MIB/S",
        ">MEAN MS",
        ">P99 MS",
        ">P99.9 MS",
        ">CPU %",
        ">AMPL.",
    ];
    let mut table = Table::new(&heads);
    for cell in run.cells.iter().filter(|cell| !cell.measurements.is_empty()) {
        let mean = |of: fn(&Measurement) -> Option<f64>| mean(cell, of);
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(String::new, |value| match digits {
                0 => count_text(value),
                digits => format!("{value:.digits$}"),
            })
        };
        let ms = |us: Option<f64>| number(us.map(|us| us / 1000.0), 2);
        table.row([
            format_size(cell.load.block_size_bytes.into()),
            cell.load.write_percent.to_string(),
            cell.load.outstanding.to_string(),
            number(mean(|measured| measured.iops), 0),
            number(mean(|measured| measured.mib_per_second), 0),
            ms(mean(|measured| measured.total.mean_us)),
            ms(mean(|measured| measured.total.p99_us)),
            ms(mean(|measured| measured.total.p99_9_us)),
            number(mean(|measured| measured.cpu_percent), 1),
            number(mean(|measured| measured.write_amplification), 3),
        ]);
    }
    let mut text = table.render();
    for remark in &run.remarks {
        text += &format!("note: {remark}\n");
    }
    text
}

fn mean(cell: &MeasuredCell, of: fn(&Measurement) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = cell.measurements.iter().filter_map(of).collect();
    let have_all = !values.is_empty() && values.len() == cell.measurements.len();
    have_all.then(|| Spread::of(values.into_iter()).mean)
}

#[cfg(test)]
#[path = "fleet_report_tests.rs"]
mod tests;
