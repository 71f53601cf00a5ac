//! The command line of `spandrel drive inspect`, and what carries it out.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use spandrel_shared::{Error, SlabIndex, VolumeId};

use crate::export::{ExportOptions, ExportReport, export};
use crate::inspect::{CachePaths, InspectOptions, inspect_with};
use crate::progress::Shown;

/// `spandrel drive inspect`: looks at a drive that no node has open, without changing it.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArguments {
    /// The block device, the file that serves as a drive, or an image of one
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// The cache drive that it is bound to, if it is: what was written last stands there. Several may be named
    #[arg(long, value_name = "PATH", conflicts_with = "without_cache")]
    pub cache: Vec<PathBuf>,

    /// Take what stands on the cache drive that it is bound to for lost
    #[arg(long)]
    pub without_cache: bool,

    /// Also list every live structure and data block with its place on the drive
    #[arg(long, conflicts_with = "export")]
    pub blocks: bool,

    /// Do not cut long lists
    #[arg(long, conflicts_with = "export")]
    pub all: bool,

    /// Write this copy of a slab out as raw bytes, instead of inspecting
    #[arg(long, value_name = "VOLUME:SLAB", value_parser = parse_slab, requires = "to")]
    pub export: Option<ExportedSlab>,

    /// The new file to write the copy to
    #[arg(long, value_name = "FILE", requires = "export")]
    pub to: Option<PathBuf>,

    /// Export a damaged copy all the same: what cannot be had is left zero, and named
    #[arg(long, requires = "export")]
    pub zero_damaged: bool,

    /// Read the drive although a node has it open. What changes meanwhile can look like damage
    #[arg(long)]
    pub in_use: bool,

    /// How to write the result
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: InspectFormat,
}

const EXAMPLES: &str = "\
Examples:
  Check every checksum on a drive:
    spandrel drive inspect /dev/sdb
  The same for one that is bound to a cache drive:
    spandrel drive inspect /dev/sdb --cache /dev/nvme0n1
  Save what a lone drive holds of slab 0 of a volume:
    spandrel drive inspect /dev/sdb --export 5f0c7c1e-93a4-4f5e-8f5b-1d2c3b4a5968:0 --to slab-0.raw

The exit status is 0 if nothing is damaged, and 2 if something is.";

/// How an inspection is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// For people.
    #[default]
    Table,
    /// For programs. Nothing is cut.
    Json,
}

/// Which copy to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedSlab {
    /// The volume.
    pub volume: VolumeId,
    /// The slab of it.
    pub slab: SlabIndex,
}

/// How an inspection went that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is damaged.
    Sound,
    /// Something is damaged, and was named.
    Damaged,
}

impl Outcome {
    /// The exit status that says so.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Sound => 0,
            Self::Damaged => 2,
        }
    }
}

impl InspectArguments {
    /// Carries out what was asked for and writes the result to `output`. Progress is shown on
    /// standard error if that is a terminal.
    ///
    /// # Errors
    ///
    /// Those of [`crate::inspect`] and [`crate::export`]; `OUTPUT_FAILED`.
    pub fn run(&self, output: &mut impl Write) -> Result<Outcome, Error> {
        let (text, is_damaged) = match &self.export {
            Some(exported) => self.run_export(exported)?,
            None => self.run_inspection()?,
        };
        output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| {
            let next = "send the output somewhere that can take it";
            Error::new("OUTPUT_FAILED", "the result cannot be written", error.to_string(), next)
        })?;
        Ok(if is_damaged { Outcome::Damaged } else { Outcome::Sound })
    }

    fn caches(&self) -> CachePaths<'_> {
        if self.without_cache { CachePaths::Lost } else { CachePaths::Among(&self.cache) }
    }

    fn run_inspection(&self) -> Result<(String, bool), Error> {
        let options = InspectOptions { allow_in_use: self.in_use, list_blocks: self.blocks };
        let mut shown = Shown::on_standard_error();
        let inspection =
            inspect_with(&self.path, self.caches(), options, &mut |progress| shown.show(progress));
        drop(shown);
        let inspection = inspection?;
        let text = match self.output {
            InspectFormat::Table => inspection.to_text(self.all),
            InspectFormat::Json => to_json(&inspection),
        };
        Ok((text, inspection.is_damaged()))
    }

    fn run_export(&self, exported: &ExportedSlab) -> Result<(String, bool), Error> {
        let Some(to) = &self.to else {
            let what = "an export needs a file to write to";
            return Err(Error::new("EXPORT_NO_FILE", what, "none was named", "name one with --to FILE"));
        };
        let options = ExportOptions { zero_damaged: self.zero_damaged, allow_in_use: self.in_use };
        let report = export(&self.path, self.caches(), (exported.volume, exported.slab), to, options)?;
        let text = match self.output {
            InspectFormat::Table => export_text(&report),
            InspectFormat::Json => to_json(&report),
        };
        Ok((text, !report.zeroed_blocks.is_empty()))
    }
}

fn export_text(report: &ExportReport) -> String {
    let mut text = format!(
        "slab {} of volume {} written to {}: {} blocks of data\n",
        report.slab,
        report.volume,
        report.output.display(),
        report.blocks_written
    );
    for block in &report.zeroed_blocks {
        text.push_str(&format!("block {block} cannot be had and was left zero\n"));
    }
    text
}

fn to_json(result: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(result).expect("its maps have text as keys");
    text.push('\n');
    text
}

fn parse_slab(text: &str) -> Result<ExportedSlab, String> {
    let parse = || {
        let (volume, slab) = text.split_once(':')?;
        Some(ExportedSlab { volume: volume.parse().ok()?, slab: SlabIndex(slab.parse().ok()?) })
    };
    parse()
        .ok_or_else(|| format!("{text:?} is no VOLUME:SLAB: write the volume's identity, a colon, a number"))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
