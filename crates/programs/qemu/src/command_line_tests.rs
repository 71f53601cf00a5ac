use spandrel_shared::VmId;
use spandrel_vm::disk::DiskName;

use super::*;

fn spec(boot: VmBoot) -> VmSpec {
    VmSpec {
        name: "web".to_owned(),
        disk: DiskName { vm: VmId::from_random(1, 2), run: 7 },
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
    let line = arguments(&spec, Accelerator::Tcg, Path::new("/clusters/a,b/n1/nbd.sock"));
    let disk = values(&line, "-blockdev")[0];
    assert!(disk.contains("server.path=/clusters/a,,b/n1/nbd.sock,"), "{disk}");
    assert!(disk.contains(&format!("export=vm:{}:7,", spec.disk.vm)), "{disk}");
    assert!(line.iter().any(|word| word.contains("werror=stop,rerror=stop")));
    assert_eq!(values(&line, "-m"), ["512M"]);
    assert_eq!(values(&line, "-smp"), ["3"]);
    assert_eq!(values(&line, "-kernel"), [] as [&str; 0]);
    assert_eq!(values(&line, "-uuid"), [spec.disk.vm.to_string()]);
}

#[test]
fn one_that_moves_here_is_the_same_but_waits() {
    let here = spec(VmBoot::Disk);
    let arriving = VmSpec { is_arriving: true, ..here.clone() };
    let line = |spec: &VmSpec| arguments(spec, Accelerator::Tcg, Path::new("/nbd.sock"));
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
    let line = arguments(&spec(boot), Accelerator::Kvm, Path::new("/n.sock"));
    assert_eq!(values(&line, "-kernel"), ["/boot/vmlinuz"]);
    assert_eq!(values(&line, "-initrd"), ["/boot/initrd"]);
    assert_eq!(values(&line, "-append"), ["console=ttyS0 panic=-1"]);
    assert_eq!(values(&line, "-machine"), ["q35,accel=kvm"]);
    assert_eq!(values(&line, "-cpu"), ["host"]);
}
