//! The client's side: a type with the trait's methods, as clients call them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;

use crate::model::{Method, Service, codec, documented, named};
use crate::parameter::{Bulk, Kind, Memory, Parameter};

pub(crate) fn of(service: &Service) -> TokenStream {
    let (client, vis) = (named(service, "Client"), &service.item.vis);
    let about =
        format!("A client of a server of [`{}`]. Cloning makes another handle.", service.item.ident.unraw());
    let methods = service.methods.iter().enumerate().map(|(index, method)| call(service, index, method));
    quote! {
        #[doc = #about]
        #[allow(dead_code, reason = "a program may be a server alone")]
        #[derive(Debug, Clone)]
        #vis struct #client(::genie::service::generated::Connected);

        #[allow(dead_code, reason = "a program may be a server alone, or not call all methods")]
        impl #client {
            /// Connects to a server in another process, as `genie::Connect::connect` does.
            ///
            /// # Errors
            /// There is no such server, or it has no method of this client's.
            #vis fn connect(
                genie: &::genie::service::generated::Interface,
                server: &str,
            ) -> ::core::result::Result<Self, ::genie::service::Error> {
                Self::new(genie, ::genie::Connect::connect(genie, server)?)
            }

            /// A client of a server in this process or another one.
            ///
            /// # Errors
            /// The server has no method of this client's.
            #vis fn new(
                genie: &::genie::service::generated::Interface,
                server: ::genie::service::generated::ServerHandle,
            ) -> ::core::result::Result<Self, ::genie::service::Error> {
                ::genie::service::generated::Connected::new(genie, server, Self::__methods()).map(Self)
            }

            /// The server.
            #vis fn server(&self) -> &::genie::service::generated::ServerHandle {
                self.0.server()
            }

            #(#methods)*
        }
    }
}

/// The client's method.
fn call(service: &Service, index: usize, method: &Method) -> TokenStream {
    let vis = &service.item.vis;
    let (name, value, error, result_codec) =
        (&method.name, &method.value, method.error_or_never(), method.codec());
    let otherwise = format!("Calls `{}`.", name.unraw());
    let attributes = documented(&method.attributes, &otherwise);
    let parameters = method.parameters.iter().filter_map(parameter);
    let arguments = method.parameters.iter().filter_map(|parameter| {
        let Kind::Small { is_reference, is_plain, .. } = &parameter.kind else { return None };
        let (name, codec) = (&parameter.name, codec(*is_plain));
        Some(match is_reference {
            true => quote!(.and::<#codec, _>(#name)),
            false => quote!(.and::<#codec, _>(&#name)),
        })
    });
    let elements = method.parameters.iter().filter_map(|parameter| match &parameter.kind {
        Kind::Bulk(bulk) => Some(element(&parameter.name, bulk)),
        _ => None,
    });
    quote! {
        #attributes
        #[inline]
        #vis fn #name<'call, 'output, 'input>(
            &'call self,
            #(#parameters),*
        ) -> ::genie::service::Call<'call, 'output, 'input, #value, #error, #result_codec> {
            let __arguments = ::genie::service::generated::Arguments::default() #(#arguments)*;
            self.0.call(#index, __arguments) #(#elements)*
        }
    }
}

/// A parameter of the client's method.
fn parameter(parameter: &Parameter) -> Option<TokenStream> {
    let (name, ty) = (&parameter.name, &parameter.ty);
    Some(match &parameter.kind {
        Kind::Request => return None,
        Kind::Small { .. } => quote!(#name: #ty),
        Kind::Bulk(Bulk { is_input, item, memory, .. }) => match (memory, is_input) {
            (Memory::Borrowed, false) => quote!(#name: &'output [#item]),
            (Memory::Borrowed, true) => quote!(#name: &'input mut [#item]),
            (Memory::Migrant, true) => quote!(#name: usize),
            (Memory::Buffer | Memory::Migrant, _) => quote!(#name: #ty),
        },
    })
}

/// What adds a bulk argument to a call.
fn element(name: &syn::Ident, Bulk { is_input, memory, scheme, .. }: &Bulk) -> TokenStream {
    let scheme = quote!(::genie::service::generated::Scheme::#scheme);
    let (method, element) = match is_input {
        true => (quote!(input), quote!(::genie::service::generated::In)),
        false => (quote!(out), quote!(::genie::service::generated::Out)),
    };
    let element = match (memory, is_input) {
        (Memory::Borrowed, false) => {
            quote!(#element::borrowed(#scheme, ::genie::service::generated::bytes(#name)))
        }
        (Memory::Borrowed, true) => {
            quote!(#element::borrowed(#scheme, ::genie::service::generated::bytes_mut(#name)))
        }
        (Memory::Buffer, _) => quote!(#element::owned(#scheme, #name)),
        (Memory::Migrant, _) => quote!(#element::migrant(#scheme, #name)),
    };
    quote!(.#method(#element))
}
