//! The server's side: the trait as servers implement it, and the server of any implementation.
//!
//! Generated names that stand beside the names of a trait's arguments begin with two underscores.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Type;
use syn::ext::IdentExt;

use crate::model::{Method, Service, codec, named};
use crate::parameter::{Kind, Parameter, text};

pub(crate) fn of(service: &Service) -> TokenStream {
    let contract = contract(service);
    let methods = methods(service);
    let server = server(service);
    let closure = match &service.methods[..] {
        // A closure may not have what a supertrait asks for.
        [only] if service.item.supertraits.is_empty() => closure(service, only),
        _ => TokenStream::new(),
    };
    quote! { #contract #methods #server #closure }
}

/// The trait, whose methods take bulk arguments as servers see them.
fn contract(service: &Service) -> TokenStream {
    let item = &service.item;
    let (attributes, vis, name) = (&item.attrs, &item.vis, &item.ident);
    let supertraits = item.supertraits.iter();
    let methods = service.methods.iter().map(|method| {
        let attributes = &method.attributes;
        let (name, parameters, returns) =
            (&method.name, method.parameters.iter().map(parameter), &method.returns);
        quote! { #(#attributes)* fn #name(&self, #(#parameters),*) #returns; }
    });
    quote! {
        #(#attributes)*
        #vis trait #name: #(#supertraits +)* ::core::marker::Send + ::core::marker::Sync + 'static {
            #(#methods)*
        }
    }
}

/// A parameter of the server's method.
fn parameter(parameter: &Parameter) -> TokenStream {
    let (name, ty) = (&parameter.name, parameter_type(parameter));
    quote!(#name: #ty)
}

fn parameter_type(parameter: &Parameter) -> TokenStream {
    match &parameter.kind {
        Kind::Request | Kind::Small { .. } => {
            let ty = &parameter.ty;
            quote!(#ty)
        }
        Kind::Bulk(bulk) => {
            let item = &bulk.item;
            match bulk.is_input {
                true => quote!(::genie::service::Input<'_, #item>),
                false => quote!(::genie::service::Output<'_, #item>),
            }
        }
    }
}

/// The methods' signatures, which both sides compare.
fn methods(service: &Service) -> TokenStream {
    let client = named(service, "Client");
    let methods = service.methods.iter().map(|method| {
        let name = method.name.unraw().to_string();
        let parameters = method.parameters.iter().filter_map(|parameter| {
            let shape = shape(&parameter.kind)?;
            let name = parameter.name.unraw().to_string();
            Some(quote!(::genie::service::generated::Parameter { name: #name, shape: #shape }))
        });
        let value = typed_shape(&method.value, method.is_plain);
        let error = match &method.error {
            Some(error) => {
                let shape = typed_shape(error, false);
                quote!(::core::option::Option::Some(#shape))
            }
            None => quote!(::core::option::Option::None),
        };
        let reads = method.bulk().any(|bulk| !bulk.is_input);
        let writes = method.bulk().any(|bulk| bulk.is_input);
        quote!(::genie::service::generated::Method::new(#name, [#(#parameters),*], (#value, #error), (#reads, #writes)))
    });
    quote! {
        impl #client {
            fn __methods() -> &'static [::genie::service::generated::Method] {
                static METHODS: ::genie::service::generated::Methods = ::genie::service::generated::Methods::new();
                ::genie::service::generated::described(&METHODS, || ::std::vec![#(#methods),*])
            }
        }
    }
}

/// What a signature says of an argument.
fn shape(kind: &Kind) -> Option<TokenStream> {
    match kind {
        Kind::Request => None,
        Kind::Small { owned, is_plain, .. } => Some(typed_shape(owned, *is_plain)),
        Kind::Bulk(bulk) => {
            let (item, text) = (&bulk.item, text(&bulk.item));
            Some(match bulk.is_input {
                true => quote!((#text, ::genie::service::generated::shape::input::<#item>)),
                false => quote!((#text, ::genie::service::generated::shape::output::<#item>)),
            })
        }
    }
}

fn typed_shape(ty: &Type, is_plain: bool) -> TokenStream {
    let text = text(ty);
    if text == "str" {
        return quote!((#text, ::genie::service::generated::shape::serde::<::std::string::String>));
    }
    match is_plain {
        true => quote!((#text, ::genie::service::generated::shape::plain::<#ty>)),
        false => quote!((#text, ::genie::service::generated::shape::serde::<#ty>)),
    }
}

/// The server of any implementation.
fn server(service: &Service) -> TokenStream {
    let (contract, vis) = (&service.item.ident, &service.item.vis);
    let (server, client) = (named(service, "Server"), named(service, "Client"));
    let name = contract.unraw().to_string();
    let arms = service.methods.iter().enumerate().map(|(index, method)| {
        let (index, body) = (index as u32, answered(contract, method));
        quote!(#index => #body,)
    });
    let about = format!("Serves [`{name}`], for `genie::channel::Listener` or `genie::ServerHandle::new`.");
    quote! {
        #[allow(dead_code, reason = "a program may be a client alone")]
        #[doc = #about]
        #vis struct #server<S> {
            server: S,
            services: ::std::vec::Vec<::genie::service::generated::Service>,
        }

        #[allow(dead_code, reason = "a program may be a client alone")]
        impl<S: #contract> #server<S> {
            /// Serves what `server` implements.
            #vis fn new(server: S) -> Self {
                Self { server, services: ::genie::service::generated::services(#client::__methods()) }
            }
        }

        impl<S: #contract> ::genie::service::generated::Server for #server<S> {
            fn name(&self) -> &str {
                #name
            }

            fn services(&self) -> &[::genie::service::generated::Service] {
                &self.services
            }

            fn request(&self, incoming: ::genie::service::generated::Incoming) {
                match incoming.service().0 {
                    #(#arms)*
                    _ => ::genie::service::generated::describe(incoming, #client::__methods()),
                }
            }

            fn abort(&self, _request: ::genie::service::generated::RequestId) {}
        }
    }
}

/// What serves one method's requests.
fn answered(contract: &syn::Ident, method: &Method) -> TokenStream {
    let (name, value, error, result_codec) =
        (&method.name, &method.value, method.error_or_never(), method.codec());
    let directions = method.bulk().map(|bulk| match bulk.is_input {
        true => quote!(::genie::service::generated::Direction::In),
        false => quote!(::genie::service::generated::Direction::Out),
    });
    let count = method.bulk().count();
    let decoded = method.parameters.iter().filter_map(decoded);
    let mut next = 0usize..;
    let bulk = method.parameters.iter().filter_map(|parameter| {
        let Kind::Bulk(bulk) = &parameter.kind else { return None };
        let (name, text, item) = (&parameter.name, parameter.name.unraw().to_string(), &bulk.item);
        let index = next.next();
        Some(match bulk.is_input {
            true => quote!(let #name = __taken.input::<#item>(#index, #text)?;),
            false => quote!(let #name = __taken.output::<#item>(#index, #text)?;),
        })
    });
    let passed = method.parameters.iter().map(|parameter| {
        let name = &parameter.name;
        match &parameter.kind {
            Kind::Request => quote!(__taken.incoming()),
            Kind::Small { is_reference: true, owned, .. } if text(owned) != "str" => quote!(&#name),
            _ => quote!(#name),
        }
    });
    let called = quote!(#contract::#name(&self.server, #(#passed),*));
    let called = match method.error {
        Some(_) => called,
        None => quote!(::core::result::Result::Ok(#called)),
    };
    quote! {
        ::genie::service::generated::answer::<#count, #result_codec, #value, #error>(
            incoming,
            [#(#directions),*],
            |__taken| {
                let mut __arguments = __taken.arguments();
                #(#decoded)*
                __arguments.end()?;
                #(#bulk)*
                ::core::result::Result::Ok(#called)
            },
        )
    }
}

/// Decodes a small argument.
fn decoded(parameter: &Parameter) -> Option<TokenStream> {
    let Kind::Small { owned, is_reference, is_plain } = &parameter.kind else { return None };
    let (name, codec) = (&parameter.name, codec(*is_plain));
    let unraw = name.unraw().to_string();
    let ty = match *is_reference && text(owned) == "str" {
        true => quote!(&str),
        false => quote!(#owned),
    };
    Some(quote!(let #name = __arguments.next::<#codec, #ty>(#unraw)?;))
}

/// A closure as the server of a service's only method.
fn closure(service: &Service, only: &Method) -> TokenStream {
    let (contract, vis) = (&service.item.ident, &service.item.vis);
    let (server, of_closure) = (named(service, "Server"), named(service, "Closure"));
    let (name, returns) = (&only.name, &only.returns);
    let types: Vec<_> = only.parameters.iter().map(parameter_type).collect();
    let names: Vec<_> = only.parameters.iter().map(|parameter| &parameter.name).collect();
    let bound = quote!(Fn(#(#types),*) #returns + ::core::marker::Send + ::core::marker::Sync + 'static);
    let about = format!("A closure as [`{contract}`].");
    quote! {
        #[allow(dead_code, reason = "a program may be a client alone, or implement the trait")]
        #[doc = #about]
        #vis struct #of_closure<F>(F);

        impl<F: #bound> #contract for #of_closure<F> {
            fn #name(&self, #(#names: #types),*) #returns {
                (self.0)(#(#names),*)
            }
        }

        #[allow(dead_code, reason = "a program may be a client alone, or implement the trait")]
        impl<F: #bound> #server<#of_closure<F>> {
            /// Serves by a closure, which is the only method.
            #vis fn from_fn(method: F) -> Self {
                Self::new(#of_closure(method))
            }
        }
    }
}
