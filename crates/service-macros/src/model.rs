//! What a trait says: its methods, their arguments and results.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemTrait, PathArguments, ReceiverKind, Result,
    ReturnType, Safety, TraitItem, TraitItemFn, Type,
};

use crate::parameter::{Bulk, Kind, Parameter, last_segment, take_flag};

/// The most bytes of a method's name: what a service's name leaves beside `#` and the digest.
const NAME: usize = 47;

pub(crate) struct Service {
    pub(crate) item: ItemTrait,
    pub(crate) methods: Vec<Method>,
}

pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) parameters: Vec<Parameter>,
    /// What the method returns, as written.
    pub(crate) returns: ReturnType,
    pub(crate) value: Type,
    pub(crate) error: Option<Type>,
    pub(crate) is_plain: bool,
}

impl Service {
    pub(crate) fn of(arguments: TokenStream, mut item: ItemTrait) -> Result<Self> {
        if !arguments.is_empty() {
            return Err(Error::new_spanned(arguments, "`service` takes no arguments"));
        }
        if !item.generics.params.is_empty() || item.generics.where_clause.is_some() {
            return Err(Error::new_spanned(&item.generics, "a service has no generic parameters"));
        }
        if let Some(keyword) = item.unsafety {
            return Err(Error::new_spanned(keyword, "a service's trait is safe to implement"));
        }
        let methods = std::mem::take(&mut item.items).into_iter().map(|item| match item {
            TraitItem::Fn(method) => Method::of(method),
            other => Err(Error::new_spanned(other, "a service has methods only")),
        });
        let methods = methods.collect::<Result<Vec<_>>>()?;
        if methods.is_empty() {
            return Err(Error::new_spanned(&item.ident, "a service has at least one method"));
        }
        Ok(Self { item, methods })
    }
}

impl Method {
    fn of(method: TraitItemFn) -> Result<Self> {
        let TraitItemFn { mut attrs, sig, default, .. } = method;
        check_name(&sig.ident)?;
        let refused = |what: &dyn ToTokens, why: &str| Err(Error::new_spanned(what, why));
        if let Some(body) = default {
            return refused(&body, "a method of a service has no body here: servers implement it");
        }
        if let Some(keyword) = sig.asyncness {
            return refused(
                &keyword,
                "a service's methods are not async; clients await any call by `genie::tokio`",
            );
        }
        if !matches!(sig.safety, Safety::Default) || sig.abi.is_some() {
            return refused(&sig, "a service's methods are neither `unsafe` nor `extern`");
        }
        if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
            return refused(
                &sig.generics,
                "a method of a service has no generic parameters or named lifetimes",
            );
        }
        if let Some(condition) = attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            return refused(condition, "a service has the same methods in each build; make two services");
        }
        let mut inputs = sig.inputs.into_iter();
        match inputs.next() {
            Some(FnArg::Receiver(receiver))
                if matches!(&receiver.kind, ReceiverKind::Reference(_, None, None)) => {}
            Some(first) => return refused(&first, SELF),
            None => return refused(&sig.ident, SELF),
        }
        let parameters = inputs.map(|input| match input {
            FnArg::Typed(parameter) => Parameter::of(parameter),
            FnArg::Receiver(receiver) => Err(Error::new_spanned(receiver, SELF)),
        });
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let is_plain = take_flag(&mut attrs, "plain")?;
        let (value, error) = returned(&sig.output)?;
        Ok(Self {
            name: sig.ident,
            attributes: attrs,
            parameters,
            returns: sig.output,
            value,
            error,
            is_plain,
        })
    }

    /// The buffers, in order.
    pub(crate) fn bulk(&self) -> impl Iterator<Item = &Bulk> {
        self.parameters.iter().filter_map(|parameter| match &parameter.kind {
            Kind::Bulk(bulk) => Some(bulk),
            _ => None,
        })
    }

    /// How results are encoded.
    pub(crate) fn codec(&self) -> TokenStream {
        codec(self.is_plain)
    }

    /// The error's type, also where the method has none.
    pub(crate) fn error_or_never(&self) -> TokenStream {
        match &self.error {
            Some(error) => quote!(#error),
            None => quote!(::genie::service::Never),
        }
    }
}

const SELF: &str = "a method of a service takes `&self`, since a server serves from several threads";

pub(crate) fn codec(is_plain: bool) -> TokenStream {
    match is_plain {
        true => quote!(::genie::service::generated::Plain),
        false => quote!(::genie::service::generated::Serde),
    }
}

fn check_name(name: &Ident) -> Result<()> {
    let text = name.unraw().to_string();
    if text.len() > NAME {
        return Err(Error::new_spanned(name, format!("a method's name takes at most {NAME} bytes")));
    }
    if ["new", "connect", "server"].contains(&text.as_str()) {
        return Err(Error::new_spanned(
            name,
            format!("`{text}` is a function of every client; choose another name"),
        ));
    }
    Ok(())
}

/// The value and the error that a method returns.
fn returned(output: &ReturnType) -> Result<(Type, Option<Type>)> {
    let ReturnType::Type(_, ty) = output else {
        return Ok((syn::parse_quote!(()), None));
    };
    if let Type::Reference(reference) = &**ty {
        return Err(Error::new_spanned(
            reference,
            "a method returns owned values; bulk data is returned by an argument `&mut [T]`",
        ));
    }
    let Some(last) = last_segment(ty).filter(|last| last.ident == "Result") else {
        return Ok(((**ty).clone(), None));
    };
    let types: Vec<_> = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty.clone()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    match <[Type; 2]>::try_from(types) {
        Ok([value, error]) => Ok((value, Some(error))),
        Err(_) => Err(Error::new_spanned(ty, "write both types of the result: `Result<T, E>`")),
    }
}

/// The attributes of a client's method: those of the trait's, and documentation in any case.
pub(crate) fn documented(attributes: &[Attribute], otherwise: &str) -> TokenStream {
    match attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
        true => quote!(#(#attributes)*),
        false => quote!(#[doc = #otherwise] #(#attributes)*),
    }
}

/// A name made of the trait's.
pub(crate) fn named(service: &Service, suffix: &str) -> Ident {
    Ident::new(&format!("{}{suffix}", service.item.ident.unraw()), Span::call_site())
}

#[cfg(test)]
mod tests;
