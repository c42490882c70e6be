//! System call filters (seccomp), as containers and sandboxes have them.
#![allow(unsafe_code, reason = "gives the kernel a filter, which is valid for the call")]

/// Makes these system calls of the calling thread, and of those that it starts, fail with `errno` from now on.
pub(crate) fn refuse(calls: &[i64], errno: i32) {
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, answer) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let refusal = step(answer, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0);
    // The number of the call is what the kernel's description of it begins with.
    let mut steps = [const { libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 } }; 32];
    steps[0] = step(load, 0, 0, 0);
    for (pair, call) in steps[1..].chunks_exact_mut(2).zip(calls) {
        pair.copy_from_slice(&[step(equal, *call as u32, 0, 1), refusal]);
    }
    let len = 1 + 2 * calls.len();
    steps[len] = step(answer, libc::SECCOMP_RET_ALLOW, 0, 0);
    let program = libc::sock_fprog { len: len as u16 + 1, filter: steps.as_mut_ptr() };
    // SAFETY: the program is valid for the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
