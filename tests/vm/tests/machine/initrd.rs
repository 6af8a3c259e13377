// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! The guest's file system: our static programs and the kernel's VFIO modules, as a cpio archive ("newc", see
//! Documentation/driver-api/early-userspace/buffer-format.rst in Linux).

use std::fs;
use std::path::{Path, PathBuf};

const MODULES: [&str; 6] = [
    "irqbypass.ko",
    "vfio.ko",
    "vfio_virqfd.ko",
    "vfio_iommu_type1.ko",
    "vfio-pci-core.ko",
    "vfio-pci.ko",
];

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The archive.
pub(crate) fn of(packages: &Path, programs: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    for directory in ["bin", "modules", "proc", "sys", "dev", "run", "tmp"] {
        add(&mut archive, directory, DIRECTORY, &[]);
    }
    for (name, program) in [
        ("init", "phub-guest"),
        ("bin/phubd", "phubd"),
        ("bin/phubctl", "phubctl"),
    ] {
        let data = fs::read(programs.join(program)).expect("`make test-vm` builds the programs");
        add(&mut archive, name, PROGRAM, &data);
    }
    let mut found = Vec::new();
    find(&packages.join("kernel/lib/modules"), &mut found);
    for module in MODULES {
        let path = found.iter().find(|path| path.ends_with(module));
        let data = fs::read(path.unwrap_or_else(|| panic!("the kernel has no {module}"))).unwrap();
        add(&mut archive, &format!("modules/{module}"), PROGRAM, &data);
    }
    add(&mut archive, "TRAILER!!!", 0, &[]);
    archive
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => find(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

fn add(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let links = 1;
    // inode, mode, uid, gid, links, time, size, device numbers, length of the name, checksum
    let fields = [
        archive.len() as u32,
        mode,
        0,
        0,
        links,
        0,
        data.len() as u32,
        0,
        0,
        0,
        0,
        name.len() as u32 + 1,
        0,
    ];
    archive.extend(b"070701");
    fields
        .iter()
        .for_each(|field| archive.extend(format!("{field:08x}").bytes()));
    archive.extend(name.bytes().chain([0]));
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(data);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
