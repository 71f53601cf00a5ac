//! A plain file without any server: what the machine does by itself.

use crate::cell::Medium;
use crate::contender::{Contender, Known, Setup};

pub(super) const FILE: Known = Known { name: "file", what: "a plain file, 1 copy", needs: &[], start };

struct PlainFile {
    reach: Vec<String>,
}

impl Contender for PlainFile {
    fn reach(&self) -> Vec<String> {
        self.reach.clone()
    }
}

fn start(setup: &Setup) -> Result<Box<dyn Contender>, String> {
    let path = setup.folder.join("file");
    let mut reach = vec!["--ioengine=io_uring".to_owned(), format!("--filename={}", path.display())];
    if setup.medium == Medium::Disk {
        // Each group of writes is made durable before the next one, as whoever answers for them must.
        let group = ["--direct=1", "--iodepth_batch=32", "--iodepth_batch_complete_min=32", "--fdatasync=32"];
        reach.extend(group.map(str::to_owned));
    }
    Ok(Box::new(PlainFile { reach }))
}
