//! Traits that are none of a service, and what is read out of others.

use super::*;
use crate::parameter::text;

/// What is said of a trait with this in it.
fn refused(inside: &str) -> String {
    let item = syn::parse_str(&format!("trait Bits {{ {inside} }}")).expect("a trait");
    Service::of(TokenStream::new(), item).err().expect("an error").to_string()
}

#[test]
fn what_no_service_can_have_is_refused_in_words() {
    for (inside, why) in [
        ("", "a service has at least one method"),
        ("const A: u8;", "a service has methods only"),
        ("fn a();", SELF),
        ("fn a(data: &[u8]);", SELF),
        ("fn a(&mut self);", SELF),
        ("fn a(self);", SELF),
        ("#[cfg(unix)] fn a(&self);", "a service has the same methods in each build; make two services"),
        ("fn a(&self) {}", "a method of a service has no body here: servers implement it"),
        ("async fn a(&self);", "a service's methods are not async; clients await any call by `genie::tokio`"),
        ("fn a<T>(&self, a: T);", "a method of a service has no generic parameters or named lifetimes"),
        ("fn connect(&self);", "`connect` is a function of every client; choose another name"),
        ("fn a(&self, (b, c): (u8, u8));", "an argument of a service's method has a plain name"),
        ("fn a(&self, b @ 1: u8);", "an argument of a service's method has a plain name"),
        ("unsafe fn a(&self);", "a service's methods are neither `unsafe` nor `extern`"),
        ("extern \"C\" fn a(&self);", "a service's methods are neither `unsafe` nor `extern`"),
        ("fn a(&self, b: &'static str);", "leave the lifetime out"),
        ("fn a(&self, b: &mut u8);", "only slices are filled: make this `&mut [T]`, or return the value"),
        (
            "fn a(&self) -> &[u8];",
            "a method returns owned values; bulk data is returned by an argument `&mut [T]`",
        ),
        ("fn a(&self) -> io::Result<u8>;", "write both types of the result: `Result<T, E>`"),
        ("fn a(&self, #[scheme(move)] b: &[u8]);", "`move` is a scheme for `Migrant`"),
        ("fn a(&self, #[scheme(copy)] b: Migrant);", "`copy` is a scheme for slices and `Buffer`"),
        (
            "fn a(&self, #[scheme(copy)] b: u8);",
            "only `&[T]`, `&mut [T]`, `Buffer` and `Migrant` are passed by a scheme; other arguments are encoded",
        ),
        (
            "fn a(&self, #[plain] b: &[u8]);",
            "`#[plain]` is for values that are encoded, and these are passed as they are",
        ),
        (
            "fn a(&self, #[input] b: &[u8]);",
            "`#[input]` is for `Buffer` and `Migrant`: a slice is filled if it is `&mut [T]`",
        ),
        (
            "fn a(&self, #[shared] b: &[u8]);",
            "arguments have the attributes `#[plain]`, `#[scheme(...)]` and `#[input]`",
        ),
    ] {
        assert_eq!(refused(inside), why, "{inside}");
    }
    let unknown = refused("fn a(&self, #[scheme(shared)] b: &[u8]);");
    assert!(unknown.starts_with("there is no scheme `shared`; the schemes are copy, emulated_copy, "));
    let long = refused(&format!("fn {}(&self);", "a".repeat(48)));
    assert_eq!(long, "a method's name takes at most 47 bytes");
}

#[test]
fn a_trait_that_is_no_plain_one_is_refused() {
    let refused = |item: &str| {
        let item = syn::parse_str(item).expect("a trait");
        Service::of(TokenStream::new(), item).err().expect("an error").to_string()
    };
    assert_eq!(refused("trait Bits<T> { fn a(&self); }"), "a service has no generic parameters");
    assert_eq!(refused("unsafe trait Bits { fn a(&self); }"), "a service's trait is safe to implement");
}

#[test]
fn schemes_are_emulated_unless_one_is_named() {
    let item =
        "trait Bits { fn a(&self, b: &[u8], #[scheme(share)] c: &mut [u8], d: genie::Buffer, e: Migrant); }";
    let service = Service::of(TokenStream::new(), syn::parse_str(item).expect("a trait")).expect("a service");
    let schemes: Vec<_> = service.methods[0].bulk().map(|bulk| bulk.scheme.to_string()).collect();
    assert_eq!(schemes, ["EmulatedCopy", "Share", "EmulatedCopy", "EmulatedMove"]);
}

#[test]
fn a_types_text_has_no_needless_spaces() {
    let ty = syn::parse_str("Vec < ( & 'static str , [ u8 ; 4 ] , dyn Send ) >").expect("a type");
    assert_eq!(text(&ty), "Vec<(&'static str,[u8;4],dyn Send)>");
}
