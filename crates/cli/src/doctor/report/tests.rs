//! Reports: every finding is printed, with commands that can be copied, and in colour on terminals only.

use super::super::remedy::Remedy;
use super::*;

const LONG: &str = "every scheme works, but with 4 KiB granules: write protection and page swapping cost about as much as \
                    the copy they avoid";

fn findings() -> Vec<Finding> {
    vec![
        Finding::missing("huge pages", "0 of 2 MiB", LONG)
            .with(Remedy::setting("/proc/sys/vm/nr_hugepages", 400)),
        Finding::ok("CPUs", "available", "ok and missing are words that may stand anywhere"),
    ]
}

fn applied(error: Option<&str>) -> Vec<Applied> {
    let remedy = Remedy::setting("/proc/sys/vm/nr_hugepages", 400);
    vec![Applied {
        subject: "huge pages",
        command: remedy.command(true),
        lasting: remedy.lasting(true),
        error: error.map(str::to_owned),
    }]
}

#[test]
fn each_command_stands_unbroken_on_a_line_of_its_own() {
    let text = Report::new("6.18.0", false, findings(), None).text(false);
    assert!(text.lines().any(|line| line == "  sudo sysctl vm.nr_hugepages=400  # huge pages"), "{text}");
    assert!(text.contains("sudo tee /etc/sysctl.d/60-genie-vm.nr_hugepages.conf  # huge pages"), "{text}");
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
}

#[test]
fn colour_marks_states_and_changes_no_letter() {
    let report = Report::new("6.18.0", false, findings(), None);
    let (plain, coloured) = (report.text(false), report.text(true));
    assert!(!plain.contains('\u{1b}'));
    assert_eq!(coloured.matches('\u{1b}').count(), 4, "{coloured}");
    let stripped = coloured.replace("\u{1b}[31m", "").replace("\u{1b}[32m", "").replace("\u{1b}[39m", "");
    assert_eq!(stripped, plain);
}

#[test]
fn what_was_applied_is_also_made_to_last() {
    let sound = vec![Finding::ok("huge pages", "400 of 2 MiB", "")];
    let text = Report::new("6.18.0", true, sound, Some(applied(None))).text(false);
    assert!(text.contains("  sysctl vm.nr_hugepages=400  # huge pages, done\n"), "{text}");
    assert!(text.contains("> /etc/sysctl.d/60-genie-vm.nr_hugepages.conf  # huge pages\n"), "{text}");
}

#[test]
fn a_remedy_that_failed_is_the_commands_failure() {
    let report = Report::new("6.18.0", true, findings(), Some(applied(Some("Read-only file system"))));
    let failure = report.failed().expect("a failure");
    assert_eq!(failure.status, 1);
    assert_eq!(failure.message, "not applied: sysctl vm.nr_hugepages=400 (Read-only file system)");
    assert_eq!(Report::new("6.18.0", true, findings(), Some(applied(None))).failed(), None);
}
