//! Runs a sweep against exports that are there already, of any NBD server: how the fleet is compared
//! with other load generators, and other storage with Spandrel.
//!
//! ```text
//! nbdkit --unix /tmp/nbdkit.sock memory 4G
//! cargo run --release -p spandrel-fleet --example load_any_server -- \
//!     --target 'nbd+unix:///?socket=/tmp/nbdkit.sock' --pid "$(pidof nbdkit)" --outstanding 1,8,32
//! ```
//!
//! THIS OVERWRITES WHAT THE EXPORTS HOLD. A target may be given several times, and with `--vms` above
//! the number of targets, clients share them. `--pid` names processes whose processor time counts.

use clap::Parser;
use spandrel_fleet::{
    ClientVolumes, ProcessMeter, SweepArguments, Target, VolumeRequest, progress_on_standard_error,
};
use spandrel_shared::Error;

#[derive(Parser)]
struct Arguments {
    /// An export: nbd://host:port/export or nbd+unix:///export?socket=path
    #[arg(long, required = true)]
    target: Vec<Target>,

    /// A process of the storage, whose processor time counts
    #[arg(long)]
    pid: Vec<u32>,

    #[command(flatten)]
    sweep: SweepArguments,
}

/// Exports that somebody else has made.
struct Existing {
    targets: Vec<Target>,
}

impl ClientVolumes for Existing {
    fn prepare(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error> {
        if request.aligned_percent != 100 {
            return Err(Error::new(
                "FLEET_NOT_ALIGNABLE",
                "no client can be apart from its volume's owner",
                "of these exports nobody knows where they are",
                "leave out --alignment",
            ));
        }
        let clients = self.targets.iter().cycle().take(request.count as usize).enumerate();
        let named = |(number, target): (usize, &Target)| Target {
            name: format!("client-{number:03}"),
            ..target.clone()
        };
        Ok(clients.map(named).collect())
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    let mut volumes = Existing { targets: arguments.target };
    let mut meter = ProcessMeter::new(&arguments.pid);
    let mut progress = progress_on_standard_error();
    let mut output = std::io::stdout().lock();
    arguments.sweep.run(&mut volumes, &mut meter, progress.as_mut(), &mut output)?;
    Ok(())
}
