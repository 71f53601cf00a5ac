use super::*;

#[test]
fn a_folder_says_whose_process_is_there_until_that_is_forgotten() {
    let all = tempfile::tempdir().expect("a folder can be made");
    let vm = VmId::from_random(1, 2);
    let folder = VmFolder::of(all.path(), vm);
    assert!(VmFolder::list(all.path()).expect("it can be read").is_empty());
    folder.prepare().expect("it can be made");
    assert_eq!(folder.instance(), None);
    let instance = InstanceFile { vm, run: 9, disk_bus: VmDiskBus::VhostUser, process: 17 };
    folder.write_instance(&instance).expect("it can be written");
    let found = VmFolder::list(all.path()).expect("it can be read");
    assert_eq!(found.iter().filter_map(VmFolder::instance).collect::<Vec<_>>(), [instance]);
    std::fs::write(folder.join(QEMU_LOG), "\nqemu: no such kernel\n\nqemu: bye\n")
        .expect("it can be written");
    assert_eq!(folder.said_last().as_deref(), Some("qemu: no such kernel; qemu: bye"));
    folder.forget_instance();
    assert_eq!(folder.instance(), None);
    assert!(folder.said_last().is_some(), "logs stay");
    folder.prepare().expect("it can be made anew");
    assert_eq!(folder.said_last(), None);
}

#[test]
fn a_folder_that_is_none_is_read_as_nothing() {
    let all = tempfile::tempdir().expect("a folder can be made");
    assert!(VmFolder::list(&all.path().join("none")).expect("there is none").is_empty());
    std::fs::create_dir(all.path().join("x")).expect("it can be made");
    std::fs::write(all.path().join("x").join(INSTANCE), "{").expect("it can be written");
    assert_eq!(VmFolder::list(all.path()).expect("it can be read")[0].instance(), None);
}

#[tokio::test]
async fn a_socket_is_reached_however_deep_its_folder_lies() {
    let all = tempfile::tempdir().expect("a folder can be made");
    let deep = all.path().join("a-folder-with-a-long-name".repeat(8));
    let folder = VmFolder::of(&deep, VmId::from_random(1, 2));
    folder.prepare().expect("it can be made");
    assert!(folder.connect(QMP_SOCKET).await.is_err(), "nobody listens");
    let former = folder.listen(QMP_SOCKET).expect("it can be listened on");
    drop(former);
    let _listener = folder.listen(QMP_SOCKET).expect("what was left there is no hindrance");
    folder.connect(QMP_SOCKET).await.expect("somebody listens");
}
