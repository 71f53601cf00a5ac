use std::pin::pin;

use futures_util::FutureExt;

use spandrel_platform::Platform;

use super::*;
use crate::MemoryDrive;
use crate::test_support::run;

#[test]
fn a_lock_is_awaited_for_some_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let memory = MemoryDrive::new("shard", 1 << 20).unwrap();
    run(move |platform| async move {
        let drive = platform.open_drive(&memory.location()).await.unwrap();
        let shard = &drive.inner.shard;
        let looking = File::open(file.path()).unwrap();
        rustix::fs::flock(&looking, FlockOperation::NonBlockingLockShared).unwrap();
        let wanted = OpenOptions::new().write(true).open(file.path()).unwrap();
        let error = await_lock(shard, &wanted, "here", 2).await.unwrap_err();
        assert_eq!(error.kind, DriveErrorKind::InUse);
        let mut locking = pin!(await_lock(shard, &wanted, "here", LOCK_TRIES));
        assert!(locking.as_mut().now_or_never().is_none(), "somebody else has it");
        drop(looking);
        locking.await.unwrap();
        assert!(lock(wanted.try_clone().unwrap(), "here").is_ok(), "it is locked by the same opening");
        let other = File::open(file.path()).unwrap();
        assert!(lock(other, "here").is_ok(), "what is let go unlocks it");
    });
}
