//! The launcher as a program of its own, for tests and benches. The product's binary calls the same
//! entry from its `main`.

fn main() -> std::process::ExitCode {
    tollgate_sandbox::launcher::main()
}
