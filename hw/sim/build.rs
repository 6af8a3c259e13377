// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Verilates `phub_core` for each set of parameters and compiles the C++ behind `verilated/phub_verilated.h`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One set of parameters of `phub_core`.
struct Build {
    name: &'static str,
    /// (parameter in the RTL, macro of the shim, value)
    parameters: [(&'static str, &'static str, u32); 8],
    trace: bool,
}

const fn parameters(values: [u32; 8]) -> [(&'static str, &'static str, u32); 8] {
    [
        ("Lanes", "PHUB_LANES", values[0]),
        ("SegBytes", "PHUB_SEG_BYTES", values[1]),
        ("Slots", "PHUB_SLOTS", values[2]),
        ("Tenants", "PHUB_TENANTS", values[3]),
        ("Workers", "PHUB_WORKERS", values[4]),
        ("Queues", "PHUB_QUEUES", values[5]),
        ("DescDepth", "PHUB_DESC_DEPTH", values[6]),
        ("ReadTags", "PHUB_READ_TAGS", values[7]),
    ]
}

const STANDARD: [u32; 8] = [16, 1024, 1024, 64, 64, 64, 16, 32];
const TINY: [u32; 8] = [2, 64, 4, 2, 4, 4, 2, 2];

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = here.join("../..").canonicalize()?;
    for path in ["hw/rtl", "hw/regs/generated", "hw/sim/verilated"] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    let verilator = verilator(&root)?;

    let mut builds = vec![Build {
        name: "standard",
        parameters: parameters(STANDARD),
        trace: false,
    }];
    if env::var_os("CARGO_FEATURE_TINY").is_some() {
        builds.push(Build {
            name: "tiny",
            parameters: parameters(TINY),
            trace: false,
        });
    }
    if env::var_os("CARGO_FEATURE_TRACE").is_some() {
        builds.push(Build {
            name: "traced",
            parameters: parameters(STANDARD),
            trace: true,
        });
    }

    let hash = build_hash(&root)?;
    // Verilator once a build, side by side; then the C++, in parallel as far as cargo allows.
    let running = builds
        .iter()
        .map(|b| verilate(b, &verilator, &root, &out, hash))
        .collect::<Result<Vec<_>>>()?;
    for (build, mut child) in builds.iter().zip(running) {
        if !child.wait()?.success() {
            return Err(format!(
                "Verilator refused the {} build; its messages are above",
                build.name
            )
            .into());
        }
    }
    for build in &builds {
        compile(build, &verilator, &here, &out)?;
    }
    let mut runtime = cpp(&verilator, &here);
    runtime.file(here.join("verilated/phub_runtime.cpp"));
    runtime.file(verilator.join("include/verilated.cpp"));
    runtime.file(verilator.join("include/verilated_threads.cpp"));
    if builds.iter().any(|b| b.trace) {
        runtime.file(verilator.join("include/verilated_fst_c.cpp"));
        println!("cargo:rustc-link-lib=z");
        println!("cargo:rustc-link-lib=lz4");
    }
    runtime.compile("phub_runtime");
    Ok(())
}

/// `VERILATOR_ROOT`: from the environment, or from the project's virtual environment.
fn verilator(root: &Path) -> Result<PathBuf> {
    println!("cargo:rerun-if-env-changed=VERILATOR_ROOT");
    if let Some(given) = env::var_os("VERILATOR_ROOT") {
        return Ok(given.into());
    }
    let lib = root.join(".venv/lib");
    println!("cargo:rerun-if-changed={}", lib.display());
    let pythons = fs::read_dir(&lib).into_iter().flatten().flatten();
    pythons
        .map(|python| python.path().join("site-packages/verilator"))
        .find(|place| place.join("bin/verilator_bin").is_file())
        .ok_or_else(|| {
            format!(
                "no Verilator under {}: run `make venv` first",
                lib.display()
            )
            .into()
        })
}

fn verilate(
    build: &Build,
    verilator: &Path,
    root: &Path,
    out: &Path,
    hash: u32,
) -> Result<std::process::Child> {
    let dir = out.join(build.name);
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let mut command = Command::new(verilator.join("bin/verilator_bin"));
    command
        .env("VERILATOR_ROOT", verilator)
        .current_dir(root)
        .args([
            "--cc",
            "--assert",
            "--no-timing",
            "-O3",
            // What has no reset starts random, so that nothing relies on it by chance.
            "--x-initial",
            "unique",
            "--x-assign",
            "fast",
            // Warnings are `make lint`'s business.
            "-Wno-fatal",
            "-Wno-lint",
            "-Wno-style",
            "--top-module",
            "phub_core",
        ]);
    command
        .arg("--prefix")
        .arg(top(build))
        .arg("--Mdir")
        .arg(&dir);
    for (name, _, value) in build.parameters {
        command.arg(format!("-G{name}={value}"));
    }
    command.arg(format!("-GBuildHash=32'h{hash:08x}"));
    if build.trace {
        command.args(["--trace-fst", "--trace-structs"]);
    }
    command.arg("-F").arg("hw/rtl/phub_core.f");
    Ok(command
        .spawn()
        .map_err(|e| format!("cannot run Verilator: {e}; run `make venv`"))?)
}

fn compile(build: &Build, verilator: &Path, here: &Path, out: &Path) -> Result<()> {
    let dir = out.join(build.name);
    let mut cpp = cpp(verilator, here);
    cpp.include(&dir)
        .define("PHUB_TOP", top(build).as_str())
        .define("PHUB_TABLE", format!("phub_model_{}", build.name).as_str())
        .define("PHUB_TRACE", if build.trace { "1" } else { "0" });
    for (_, name, value) in build.parameters {
        cpp.define(name, value.to_string().as_str());
    }
    // Longest first, or the last core works alone.
    let mut sources: Vec<_> = fs::read_dir(&dir)?.flatten().map(|f| f.path()).collect();
    sources.retain(|f| f.extension().is_some_and(|e| e == "cpp"));
    sources.sort_by_key(|f| {
        (
            std::cmp::Reverse(fs::metadata(f).map_or(0, |m| m.len())),
            f.clone(),
        )
    });
    cpp.files(sources)
        .file(here.join("verilated/phub_verilated.cpp"));
    cpp.compile(&format!("phub_{}", build.name));
    Ok(())
}

/// What all C++ here is compiled with.
fn cpp(verilator: &Path, here: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .include(here.join("verilated"))
        .include(verilator.join("include"))
        .include(verilator.join("include/vltstd"))
        .flag("-include")
        .flag(here.join("verilated/phub_runtime.h"))
        .define("VERILATOR", "1")
        .define("VL_TIME_CONTEXT", None)
        .define("VM_COVERAGE", "0")
        .define("VM_SC", "0")
        .define("VM_TIMING", "0")
        .define("VM_TRACE", "1")
        .define("VM_TRACE_FST", "1")
        .define("VM_TRACE_VCD", "0")
        .define("VM_TRACE_SAIF", "0");
    let ccache = Path::new("/usr/lib/ccache/g++");
    if env::var_os("CXX").is_none() && ccache.exists() {
        build.compiler(ccache);
        // Hits do not depend on where the target directory is.
        build
            .env("CCACHE_NOHASHDIR", "1")
            .env("CCACHE_BASEDIR", env::var_os("OUT_DIR").unwrap_or_default());
    }
    build
}

fn top(build: &Build) -> String {
    format!("Vphub_{}", build.name)
}

/// What the card states as its build hash: the CRC-32 of all RTL sources, in the order of their paths.
fn build_hash(root: &Path) -> Result<u32> {
    let mut files = Vec::new();
    for dir in ["hw/rtl", "hw/regs/generated"] {
        collect(&root.join(dir), &mut files)?;
    }
    files.sort();
    let mut crc = crc32fast::Hasher::new();
    for file in files {
        crc.update(&fs::read(file)?);
    }
    Ok(crc.finalize())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "sv" || e == "svh") {
            files.push(path);
        }
    }
    Ok(())
}
