//! Arguments: how each is passed, by its type and the attributes before it.

use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, Pat, PatType, PathSegment, Result, Type};

pub(crate) struct Parameter {
    pub(crate) name: Ident,
    /// As written.
    pub(crate) ty: Type,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    /// Of the server's method alone: the request.
    Request,
    /// Encoded: the type that the server decodes, and whether its method takes a reference to it.
    Small { owned: Type, is_reference: bool, is_plain: bool },
    /// The next buffer.
    Bulk(Bulk),
}

pub(crate) struct Bulk {
    pub(crate) is_input: bool,
    pub(crate) item: Type,
    pub(crate) memory: Memory,
    pub(crate) scheme: Ident,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Memory {
    Borrowed,
    Buffer,
    Migrant,
}

/// The attributes before an argument.
struct Marks {
    is_plain: bool,
    is_input: bool,
    scheme: Option<Ident>,
}

impl Parameter {
    pub(crate) fn of(parameter: PatType) -> Result<Self> {
        let PatType { mut attrs, pat, ty, .. } = parameter;
        let Pat::Ident(name) = *pat else {
            return Err(Error::new_spanned(pat, "an argument of a service's method has a plain name"));
        };
        if name.by_ref.is_some() || name.subpat.is_some() {
            return Err(Error::new_spanned(name, "an argument of a service's method has a plain name"));
        }
        let is_plain = take_flag(&mut attrs, "plain")?;
        let is_input = take_flag(&mut attrs, "input")?;
        let marks = Marks { is_plain, is_input, scheme: take_scheme(&mut attrs)? };
        if let Some(unknown) = attrs.first() {
            let known = "arguments have the attributes `#[plain]`, `#[scheme(...)]` and `#[input]`";
            return Err(Error::new_spanned(unknown, known));
        }
        let kind = Kind::of(&ty, marks)?;
        Ok(Self { name: name.ident, ty: *ty, kind })
    }
}

impl Kind {
    fn of(ty: &Type, marks: Marks) -> Result<Self> {
        let refused = |why| Err(Error::new_spanned(ty, why));
        let (target, is_mutable) = match ty {
            Type::Reference(reference) if reference.lifetime.is_some() => {
                return refused("leave the lifetime out");
            }
            Type::Reference(reference) => (Some(&*reference.elem), reference.mutability.is_some()),
            _ => (None, false),
        };
        let name = last_segment(ty).map(|last| last.ident.to_string());
        match (target, name.as_deref()) {
            (Some(Type::Slice(_)), _) if marks.is_input => {
                return refused(
                    "`#[input]` is for `Buffer` and `Migrant`: a slice is filled if it is `&mut [T]`",
                );
            }
            (Some(Type::Slice(slice)), _) => {
                return Bulk::of(ty, is_mutable, (*slice.elem).clone(), Memory::Borrowed, marks)
                    .map(Kind::Bulk);
            }
            (None, Some("Buffer")) => return Bulk::owned(ty, Memory::Buffer, marks).map(Kind::Bulk),
            (None, Some("Migrant")) => return Bulk::owned(ty, Memory::Migrant, marks).map(Kind::Bulk),
            _ => {}
        }
        if marks.scheme.is_some() || marks.is_input {
            return refused(
                "only `&[T]`, `&mut [T]`, `Buffer` and `Migrant` are passed by a scheme; other arguments are encoded",
            );
        }
        if is_mutable {
            return refused("only slices are filled: make this `&mut [T]`, or return the value");
        }
        if target.and_then(last_segment).is_some_and(|last| last.ident == "Incoming") {
            return Ok(Self::Request);
        }
        let owned = target.unwrap_or(ty).clone();
        Ok(Self::Small { owned, is_reference: target.is_some(), is_plain: marks.is_plain })
    }
}

impl Bulk {
    fn owned(ty: &Type, memory: Memory, marks: Marks) -> Result<Self> {
        Self::of(ty, marks.is_input, syn::parse_quote!(u8), memory, marks)
    }

    fn of(ty: &Type, is_input: bool, item: Type, memory: Memory, marks: Marks) -> Result<Self> {
        if marks.is_plain {
            return Err(Error::new_spanned(
                ty,
                "`#[plain]` is for values that are encoded, and these are passed as they are",
            ));
        }
        let is_migrant = memory == Memory::Migrant;
        let default = if is_migrant { "emulated_move" } else { "emulated_copy" };
        let scheme = marks.scheme.unwrap_or_else(|| Ident::new(default, ty.span()));
        let Some((_, variant, passes_migrants)) = SCHEMES.iter().find(|(name, ..)| scheme == name) else {
            let names = SCHEMES.map(|(name, ..)| name).join(", ");
            return Err(Error::new(
                scheme.span(),
                format!("there is no scheme `{scheme}`; the schemes are {names}"),
            ));
        };
        if *passes_migrants != is_migrant {
            let other = if is_migrant { "slices and `Buffer`" } else { "`Migrant`" };
            return Err(Error::new(scheme.span(), format!("`{scheme}` is a scheme for {other}")));
        }
        Ok(Self { is_input, item, memory, scheme: Ident::new(variant, scheme.span()) })
    }
}

/// Each scheme's name, the variant of `genie::Scheme`, and whether it passes migrant buffers.
const SCHEMES: [(&str, &str, bool); 8] = [
    ("copy", "Copy", false),
    ("emulated_copy", "EmulatedCopy", false),
    ("share", "Share", false),
    ("emulated_share", "EmulatedShare", false),
    ("move", "Move", true),
    ("emulated_move", "EmulatedMove", true),
    ("weak_move", "WeakMove", true),
    ("emulated_weak_move", "EmulatedWeakMove", true),
];

/// Takes the attribute `#[scheme(NAME)]` away.
fn take_scheme(attributes: &mut Vec<Attribute>) -> Result<Option<Ident>> {
    let Some(attribute) = take(attributes, "scheme") else { return Ok(None) };
    attribute.parse_args_with(Ident::parse_any).map(Some)
}

/// Takes an attribute without arguments away; returns whether it was there.
pub(crate) fn take_flag(attributes: &mut Vec<Attribute>, name: &str) -> Result<bool> {
    let Some(attribute) = take(attributes, name) else { return Ok(false) };
    attribute.meta.require_path_only().map(|_| true)
}

fn take(attributes: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
    let index = attributes.iter().position(|attribute| attribute.path().is_ident(name))?;
    Some(attributes.remove(index))
}

pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// A type's text, without spaces that only separate tokens.
pub(crate) fn text(ty: &Type) -> String {
    let spaced = ty.to_token_stream().to_string();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut text = String::new();
    let mut chars = spaced.chars().peekable();
    while let Some(c) = chars.next() {
        if c != ' ' || is_word(text.chars().last()) && is_word(chars.peek().copied()) {
            text.push(c);
        }
    }
    text
}
