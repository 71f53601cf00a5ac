use spandrel_shared::VmId;
use spandrel_vm::disk::DiskName;

use super::*;

const EMULATOR: Emulator = Emulator { accelerator: Accelerator::Tcg, version: QemuVersion(7, 2) };

fn spec(boot: VmBoot) -> VmSpec {
    VmSpec {
        name: "web".to_owned(),
        disk: DiskName { vm: VmId::from_random(1, 2), run: 7 },
        disk_bus: VmDiskBus::Nbd,
        processors: 3,
        memory_bytes: 512 << 20,
        boot,
        is_arriving: false,
    }
}

/// What follows each time on an option.
fn values<'l>(line: &'l [String], option: &str) -> Vec<&'l str> {
    let at = line.iter().enumerate().filter(|(_, word)| *word == option).map(|(at, _)| at + 1);
    at.map(|at| line[at].as_str()).collect()
}

#[test]
fn the_disk_is_opened_by_the_run_at_the_nodes_own_socket_and_errors_pause_the_guest() {
    let spec = spec(VmBoot::Disk);
    let line = arguments(&spec, EMULATOR, Path::new("/clusters/a,b/n1/nbd.sock"));
    let disk = values(&line, "-blockdev")[0];
    assert!(disk.contains("server.path=/clusters/a,,b/n1/nbd.sock,"), "{disk}");
    assert!(disk.contains(&format!("export=vm:{}:7,", spec.disk.vm)), "{disk}");
    assert!(line.iter().any(|word| word.contains("werror=stop,rerror=stop")));
    assert_eq!(values(&line, "-m"), ["524296K"], "no multiple of 256 KiB, where it is translated");
    assert_eq!(values(&line, "-smp"), ["3"]);
    assert_eq!(values(&line, "-kernel"), [] as [&str; 0]);
    assert_eq!(values(&line, "-uuid"), [spec.disk.vm.to_string()]);
}

#[test]
fn a_shared_disk_is_at_a_socket_of_its_own_and_so_is_the_guests_memory() {
    let mut spec = VmSpec { disk_bus: VmDiskBus::VhostUser, ..spec(VmBoot::Disk) };
    let line = |spec: &VmSpec| arguments(spec, EMULATOR, Path::new("/nbd.sock"));
    let words = line(&spec);
    let id = format!("disk-{}-7", spec.disk.vm);
    assert_eq!(values(&words, "-machine"), ["q35,accel=tcg,memory-backend=memory"]);
    assert_eq!(values(&words, "-object"), ["memory-backend-memfd,id=memory,size=524296K,share=on"]);
    assert!(
        values(&words, "-chardev").contains(&format!("socket,id={id},path=disk.sock,reconnect=1").as_str())
    );
    let newer = Emulator { version: QemuVersion(9, 2), ..EMULATOR };
    let of_newer = arguments(&spec, newer, Path::new("/nbd.sock"));
    assert!(
        values(&of_newer, "-chardev")
            .contains(&format!("socket,id={id},path=disk.sock,reconnect-ms=1000").as_str())
    );
    let device = format!("vhost-user-blk-pci,chardev={id},num-queues=3,bootindex=0");
    assert_eq!(values(&words, "-device")[0], device);
    assert!(!words.iter().any(|word| word.contains("nbd")));
    spec.processors = 200;
    assert!(values(&line(&spec), "-device")[0].contains("num-queues=8"));
}

#[test]
fn a_command_line_is_known_by_its_disk_and_its_run() {
    for disk_bus in [VmDiskBus::Nbd, VmDiskBus::VhostUser] {
        let spec = VmSpec { disk_bus, ..spec(VmBoot::Disk) };
        let line = arguments(&spec, EMULATOR, Path::new("/nbd.sock"));
        let is_of = |disk| is_of(line.iter().map(String::as_bytes), disk);
        assert!(is_of(spec.disk), "{disk_bus}");
        assert!(!is_of(DiskName { run: 77, ..spec.disk }), "another run");
        assert!(!is_of(DiskName { vm: VmId::from_random(3, 4), ..spec.disk }), "another machine");
    }
}

#[test]
fn one_that_moves_here_is_the_same_but_waits() {
    let here = spec(VmBoot::Disk);
    let arriving = VmSpec { is_arriving: true, ..here.clone() };
    let line = |spec: &VmSpec| arguments(spec, EMULATOR, Path::new("/nbd.sock"));
    assert_eq!(values(&line(&here), "-incoming"), [] as [&str; 0]);
    let waits = line(&arriving);
    assert_eq!(values(&waits, "-incoming"), ["unix:incoming.sock"]);
    let rest: Vec<&String> =
        waits.iter().filter(|word| *word != "-incoming" && *word != "unix:incoming.sock").collect();
    assert_eq!(rest, line(&here).iter().collect::<Vec<_>>(), "both sides must be the same machine");
}

#[test]
fn a_kernel_is_given_with_its_arguments_as_one_word() {
    let boot = VmBoot::Kernel {
        kernel: "/boot/vmlinuz".to_owned(),
        initrd: Some("/boot/initrd".to_owned()),
        arguments: "console=ttyS0 panic=-1".to_owned(),
    };
    let line =
        arguments(&spec(boot), Emulator { accelerator: Accelerator::Kvm, ..EMULATOR }, Path::new("/n.sock"));
    assert_eq!(values(&line, "-kernel"), ["/boot/vmlinuz"]);
    assert_eq!(values(&line, "-initrd"), ["/boot/initrd"]);
    assert_eq!(values(&line, "-append"), ["console=ttyS0 panic=-1"]);
    assert_eq!(values(&line, "-machine"), ["q35,accel=kvm"]);
    assert_eq!(values(&line, "-cpu"), ["host"]);
}
