//! Remedies of findings: a command for now, and a command that makes it last.
//!
//! How: a remedy that is a setting of the running kernel is stored as that setting, so that the printed command and `--fix`
//! make the same change.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A value written to a file of /proc/sys.
    Setting {
        /// The file.
        path: &'static str,
        /// What is written.
        value: String,
    },
    /// Permission bits given to a device.
    Permission {
        /// The device.
        path: &'static str,
        /// All its permission bits afterwards.
        mode: u32,
    },
    /// A command that concerns a shell or a program rather than the kernel.
    ByHand {
        /// The command.
        command: String,
        /// The command that makes the change last.
        lasting: Option<String>,
    },
}

impl Remedy {
    /// A value for a kernel setting.
    pub(crate) fn setting(path: &'static str, value: impl ToString) -> Self {
        Self::Setting { path, value: value.to_string() }
    }

    /// A command that a person runs.
    pub(crate) fn by_hand(command: impl Into<String>) -> Self {
        Self::ByHand { command: command.into(), lasting: None }
    }

    /// Whether `--fix` can apply this remedy.
    pub(crate) fn is_setting(&self) -> bool {
        !matches!(self, Self::ByHand { .. })
    }

    /// The command that holds until the next boot.
    pub(crate) fn command(&self, root: bool) -> String {
        match self {
            Self::Setting { path, value } => format!("{}sysctl {}={value}", sudo(root), sysctl_name(path)),
            Self::Permission { path, mode } => format!("{}chmod {mode:04o} {path}", sudo(root)),
            Self::ByHand { command, .. } => command.clone(),
        }
    }

    /// The command that makes it hold after each boot.
    pub(crate) fn lasting(&self, root: bool) -> Option<String> {
        match self {
            Self::Setting { path, value } => {
                let name = sysctl_name(path);
                let file = format!("/etc/sysctl.d/60-genie-{name}.conf");
                Some(write_line(&format!("{name} = {value}"), &file, root))
            }
            Self::Permission { path, mode } => {
                Some(write_line(&format!("z {path} {mode:04o} - -"), &tmpfiles(path), root))
            }
            Self::ByHand { lasting, .. } => lasting.clone(),
        }
    }

    /// Applies a setting to the kernel whose /proc, /sys and /dev lie below `root`.
    pub(crate) fn apply(&self, root: &Path) -> io::Result<()> {
        match self {
            Self::Setting { path, value } => {
                let mut file = fs::OpenOptions::new().write(true).truncate(true).open(below(root, path))?;
                file.write_all(value.as_bytes())
            }
            Self::Permission { path, mode } => {
                fs::set_permissions(below(root, path), fs::Permissions::from_mode(*mode))
            }
            Self::ByHand { .. } => Ok(()),
        }
    }
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn sudo(root: bool) -> &'static str {
    if root { "" } else { "sudo " }
}

/// `vm.nr_hugepages` for /proc/sys/vm/nr_hugepages.
fn sysctl_name(path: &str) -> String {
    path.trim_start_matches("/proc/sys/").replace('/', ".")
}

/// The tmpfiles.d file of Genie's own for a path; each path has one.
fn tmpfiles(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("/etc/tmpfiles.d/60-genie-{name}.conf")
}

/// A shell command that writes one line to a file that only root may write.
fn write_line(line: &str, path: &str, root: bool) -> String {
    let quoted = if line.contains(' ') { format!("'{line}'") } else { line.to_owned() };
    if root { format!("echo {quoted} > {path}") } else { format!("echo {quoted} | sudo tee {path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_is_set_and_made_to_last_by_commands_that_a_shell_takes() {
        let remedy = Remedy::setting("/proc/sys/vm/nr_hugepages", 400);
        assert_eq!(remedy.command(false), "sudo sysctl vm.nr_hugepages=400");
        assert_eq!(remedy.command(true), "sysctl vm.nr_hugepages=400");
        assert_eq!(
            remedy.lasting(false).unwrap(),
            "echo 'vm.nr_hugepages = 400' | sudo tee /etc/sysctl.d/60-genie-vm.nr_hugepages.conf"
        );
    }

    #[test]
    fn applying_changes_the_file_that_the_command_names() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        fs::write(root.path().join("proc/sys/vm/nr_hugepages"), "0\n").unwrap();
        fs::write(root.path().join("dev/userfaultfd"), "").unwrap();

        Remedy::setting("/proc/sys/vm/nr_hugepages", 400).apply(root.path()).unwrap();
        Remedy::Permission { path: "/dev/userfaultfd", mode: 0o666 }.apply(root.path()).unwrap();

        assert_eq!(fs::read_to_string(root.path().join("proc/sys/vm/nr_hugepages")).unwrap(), "400");
        let mode = fs::metadata(root.path().join("dev/userfaultfd")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
    }

    #[test]
    fn a_setting_that_this_kernel_lacks_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(Remedy::setting("/proc/sys/vm/nr_hugepages", 400).apply(root.path()).is_err());
    }

    #[test]
    fn a_command_for_a_shell_is_never_applied() {
        assert!(!Remedy::by_hand("ulimit -l unlimited").is_setting());
    }
}
