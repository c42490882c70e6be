//! The attribute `service` of the crate `genie`, whose documentation tells how to use it.
//!
//! How: `model` and `parameter` read the trait and say what is wrong with it; `server` and `client` write the two sides. What
//! both do is in `genie::service::generated`, so that little code is generated.

use proc_macro::TokenStream;
use syn::{ItemTrait, parse_macro_input};

mod client;
mod model;
mod parameter;
mod server;

/// Makes a client and a server of a trait; see the module `service` of the crate `genie`.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemTrait);
    let made = model::Service::of(arguments.into(), item).map(|service| {
        let (server, client) = (server::of(&service), client::of(&service));
        quote::quote! { #server #client }
    });
    made.unwrap_or_else(|error| error.into_compile_error()).into()
}
