//! A plain file without any server: what the machine does by itself.

use crate::cell::Medium;
use crate::contender::{Contender, Known, Setup};

pub(super) const FILE: Known = Known { name: "file", what: "a plain file, 1 copy", needs: &[], start };

fn start(setup: &Setup) -> Result<Contender, String> {
    let path = setup.folder.join("file");
    let mut reach = vec!["--ioengine=io_uring".to_owned(), format!("--filename={}", path.display())];
    if setup.medium == Medium::Disk {
        // Each group of writes is made durable before the next one, as whoever answers for them must.
        let group = ["--direct=1", "--iodepth_batch=32", "--iodepth_batch_complete_min=32", "--fdatasync=32"];
        reach.extend(group.map(str::to_owned));
    }
    Ok(Contender { reach: vec![reach], environment: Vec::new(), servers: Vec::new() })
}
