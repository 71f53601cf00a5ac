//! As much of `protoc` as build scripts of Rust crates ask for, so that nobody who builds this project has to install
//! it: protocol files go in, one file with their descriptors comes out. `protox` does the work.
//!
//! `xtask/protoc/protoc` builds and runs this, and `.cargo/config.toml` names it to build scripts.

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;

/// Compiles protocol files into a set of descriptors.
#[derive(Parser)]
#[command(name = "protoc")]
struct Arguments {
    /// A folder in which files and their imports are looked for.
    #[arg(short = 'I', long = "proto_path", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Where the descriptors go.
    #[arg(short = 'o', long = "descriptor_set_out", value_name = "FILE")]
    output: PathBuf,
    /// Puts the descriptors of imported files in as well.
    #[arg(long = "include_imports")]
    include_imports: bool,
    /// Puts comments and places in the files in as well.
    #[arg(long = "include_source_info")]
    include_source_info: bool,
    /// The protocol files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut compiler = protox::Compiler::new(arguments.include)?;
    compiler.include_imports(arguments.include_imports);
    compiler.include_source_info(arguments.include_source_info);
    compiler.open_files(arguments.files)?;
    std::fs::write(arguments.output, compiler.encode_file_descriptor_set())?;
    Ok(())
}
