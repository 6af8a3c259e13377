// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//! Verilates `phub_core` for each set of parameters and compiles the C++ behind `verilated/phub_verilated.h`.
//!
//! The result depends on nothing of cargo's and takes a while to make. So it is kept in `.cache/verilated/`, under a
//! hash of all that it is made from, and shared by all profiles and target directories.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
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

/// Folders whose files make the result.
const SOURCES: [&str; 3] = ["hw/rtl", "hw/regs/generated", "hw/sim/verilated"];

/// Results kept: somebody may be about to link an old one.
const KEPT: usize = 24;

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = here.join("../..").canonicalize()?;
    for path in SOURCES.into_iter().chain(["hw/sim/build.rs"]) {
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

    let cache = root.join(".cache/verilated");
    fs::create_dir_all(&cache)?;
    let lock = fs::File::create(cache.join("lock"))?;
    lock.lock()?;
    for build in &builds {
        let out = result(build, &cache, &verilator, &root, &here)?;
        println!("cargo:rustc-link-search=native={}", out.display());
        for suffix in ["", "_once"] {
            println!("cargo:rustc-link-lib=static={}{suffix}", library(&out));
        }
    }
    forget_old(&cache)?;
    drop(lock);

    let mut runtime = cpp(&verilator, &here, 1);
    runtime.file(here.join("verilated/phub_runtime.cpp"));
    runtime.file(verilator.join("include/verilated.cpp"));
    runtime.file(verilator.join("include/verilated_threads.cpp"));
    if builds.iter().any(|b| b.trace) {
        runtime.file(verilator.join("include/verilated_fst_c.cpp"));
        println!("cargo:rustc-link-lib=z");
        println!("cargo:rustc-link-lib=lz4");
    }
    runtime.cargo_metadata(true).compile("phub_runtime");
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

/// Folder with the libraries of a build, made now unless they are there.
fn result(
    build: &Build,
    cache: &Path,
    verilator: &Path,
    root: &Path,
    here: &Path,
) -> Result<PathBuf> {
    let hash = hash(build, verilator, root)?;
    let out = cache.join(format!("{}-{hash:016x}", build.name));
    let complete = out.join("complete");
    println!("cargo:rerun-if-changed={}", complete.display());
    if !complete.exists() {
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        fs::create_dir_all(&out)?;
        verilate(build, verilator, root, &out.join("cpp"))?;
        // Somebody may have edited a source meanwhile; then this is for now only.
        let unchanged = self::hash(build, verilator, root)? == hash;
        compile(build, verilator, here, &out)?;
        if unchanged {
            fs::write(&complete, "")?;
        }
    }
    Ok(out)
}

/// Hash of everything a build is made from.
fn hash(build: &Build, verilator: &Path, root: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let tools = (verilator, env::var_os("CXX"), env::var_os("CXXFLAGS"));
    (build.name, build.parameters, build.trace, tools).hash(&mut hasher);
    fs::read(root.join("hw/sim/build.rs"))?.hash(&mut hasher);
    for file in files(root, &SOURCES)? {
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn forget_old(cache: &Path) -> Result<()> {
    let made = |path: &Path| path.join("complete").metadata().ok()?.modified().ok();
    let mut results: Vec<_> = fs::read_dir(cache)?
        .flatten()
        .filter_map(|e| Some((made(&e.path())?, e.path())))
        .collect();
    results.sort();
    for (_, old) in results.iter().rev().skip(KEPT) {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}

fn verilate(build: &Build, verilator: &Path, root: &Path, out: &Path) -> Result<()> {
    let mut command = Command::new(verilator.join("bin/verilator_bin"));
    command
        .env("VERILATOR_ROOT", verilator)
        .current_dir(root)
        .args(["--cc", "--assert", "--no-timing", "-O3", "--quiet"])
        // What has no reset starts random, so that nothing relies on it by chance.
        .args(["--x-initial", "unique", "--x-assign", "fast"])
        // Warnings are `make lint`'s business.
        .args(["-Wno-fatal", "-Wno-lint", "-Wno-style"])
        .args(["--top-module", "phub_core", "--prefix"])
        .arg(top(build))
        .arg("--Mdir")
        .arg(out);
    for (name, _, value) in build.parameters {
        command.arg(format!("-G{name}={value}"));
    }
    command.arg(format!("-GBuildHash=32'h{:08x}", build_hash(root)?));
    if build.trace {
        command.args(["--trace-fst", "--trace-structs"]);
    }
    command.args(["-F", "hw/rtl/phub_core.f"]);
    let status = command
        .status()
        .map_err(|e| format!("no Verilator ({e}): run `make venv` first"))?;
    if !status.success() {
        let name = build.name;
        return Err(format!("Verilator refused the {name} build; see its messages").into());
    }
    Ok(())
}

fn compile(build: &Build, verilator: &Path, here: &Path, out: &Path) -> Result<()> {
    let dir = out.join("cpp");
    let mut sources: Vec<_> = fs::read_dir(&dir)?.flatten().map(|f| f.path()).collect();
    sources.retain(|f| f.extension().is_some_and(|e| e == "cpp"));
    // Longest first, or the last core works alone.
    let bytes = |f: &PathBuf| fs::metadata(f).map_or(0, |m| m.len());
    sources.sort_by_key(|f| (std::cmp::Reverse(bytes(f)), f.clone()));
    // What Verilator calls slow runs once. The build for waves spends its time on writing them.
    let once = |f: &PathBuf| f.to_string_lossy().ends_with("__Slow.cpp");
    let (slow, mut fast): (Vec<_>, Vec<_>) = sources.into_iter().partition(once);
    fast.push(here.join("verilated/phub_verilated.cpp"));
    let speed = if build.trace { 1 } else { 3 };
    for (suffix, sources, optimize) in [("", fast, speed), ("_once", slow, 0)] {
        let mut cpp = cpp(verilator, here, optimize);
        cpp.out_dir(out)
            .include(&dir)
            .define("PHUB_TOP", top(build).as_str())
            .define("PHUB_TABLE", format!("phub_model_{}", build.name).as_str())
            .define("PHUB_TRACE", if build.trace { "1" } else { "0" });
        for (_, name, value) in build.parameters {
            cpp.define(name, value.to_string().as_str());
        }
        cpp.files(sources)
            .try_compile(&format!("{}{suffix}", library(out)))?;
    }
    Ok(())
}

/// What all C++ here is compiled with.
fn cpp(verilator: &Path, here: &Path, optimize: u32) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .opt_level(optimize)
        .debug(false)
        .warnings(false)
        .cargo_metadata(false)
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
    }
    build
}

/// Name of the library in a folder of the cache; with the hash in it, so that none can be taken for another.
fn library(out: &Path) -> String {
    let folder = out.file_name().unwrap_or_default().to_string_lossy();
    format!("phub_{}", folder.replace('-', "_"))
}

fn top(build: &Build) -> String {
    format!("Vphub_{}", build.name)
}

/// What the card states as its build hash: the CRC-32 of all RTL sources, in the order of their paths.
fn build_hash(root: &Path) -> Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    for file in files(root, &["hw/rtl", "hw/regs/generated"])? {
        if file.extension().is_some_and(|e| e == "sv" || e == "svh") {
            crc.update(&fs::read(file)?);
        }
    }
    Ok(crc.finalize())
}

/// All files below these folders, sorted.
fn files(root: &Path, folders: &[&str]) -> Result<Vec<PathBuf>> {
    let mut folders: Vec<_> = folders.iter().map(|f| root.join(f)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
