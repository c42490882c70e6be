//! How a server takes the requests of typed clients, and of any others.
//!
//! How: [`answer`] checks the buffers, makes inputs ready, has the generated code decode the arguments and call the method, and
//! replies with the encoded result.
//! Trust: a request may come from a client that knows nothing of types. Whatever does not fit the method is refused before the
//! method is called.

use genie_io::{Incoming, ServerError};
use genie_memory::Direction;
use serde::Serialize;

use crate::call::{ERR, OK};
use crate::codec::{Bytes, Decode, Encode, Serde, ensure_empty};
use crate::input::Actual;
use crate::signature::{LONGEST, Method};
use crate::{Input, Output, PlainData, ROOM};

/// Serves one request by a method with buffers of these directions.
///
/// `method` is given a [`Taken`]; its outer error says what is wrong with the request, and the inner result is the method's.
pub fn answer<const N: usize, C: Encode<R>, R, E: Serialize>(
    mut incoming: Incoming,
    directions: [Direction; N],
    method: impl FnOnce(&Taken<'_, N>) -> Result<Result<R, E>, ServerError>,
) {
    let replied = serve::<N, C, R, E>(&mut incoming, directions, method);
    incoming.reply(replied);
}

fn serve<const N: usize, C: Encode<R>, R, E: Serialize>(
    incoming: &mut Incoming,
    directions: [Direction; N],
    method: impl FnOnce(&Taken<'_, N>) -> Result<Result<R, E>, ServerError>,
) -> Result<(), ServerError> {
    check(incoming, &directions)?;
    let inputs = (0..N).filter(|index| directions[*index] == Direction::In);
    inputs.clone().try_for_each(|index| incoming.ready(index).map(drop))?;
    let actual = [const { Actual::none() }; N];
    let result = method(&Taken { incoming, actual: &actual })?;
    let mut encoded = Bytes::new();
    match &result {
        Ok(value) => {
            encoded.push(OK);
            C::encode(value, &mut encoded)
        }
        Err(error) => {
            encoded.push(ERR);
            Serde::encode(error, &mut encoded)
        }
    }
    .map_err(|why| ServerError::new(format!("the method's result cannot be encoded: {why}")))?;
    if encoded.len() > ROOM {
        let len = encoded.len();
        return Err(ServerError::new(format!(
            "the method's result takes {len} bytes, and a result may take {ROOM}; more is to be passed by an argument `&mut [u8]`"
        )));
    }
    for index in inputs {
        let told = if result.is_ok() { actual[index].told() } else { Some(0) };
        told.map_or(Ok(()), |bytes| incoming.set_actual(index, bytes))?;
    }
    Ok(incoming.set_argument(&encoded)?)
}

/// Makes sure that a request has the method's buffers.
fn check(incoming: &Incoming, directions: &[Direction]) -> Result<(), ServerError> {
    let is_right = |index| incoming.direction(index).is_ok_and(|direction| direction == directions[index]);
    if incoming.buffers() == directions.len() && (0..directions.len()).all(is_right) {
        return Ok(());
    }
    let has: Vec<_> = (0..incoming.buffers()).filter_map(|index| incoming.direction(index).ok()).collect();
    let names =
        |directions: &[Direction]| directions.iter().map(Direction::to_string).collect::<Vec<_>>().join(", ");
    let (wanted, has) = (names(directions), names(&has));
    Err(ServerError::new(format!("the method takes buffers ({wanted}), and the request has ({has})")))
}

/// A request whose buffers fit its method.
#[derive(Debug)]
pub struct Taken<'r, const N: usize> {
    incoming: &'r Incoming,
    /// What is passed in each input.
    actual: &'r [Actual; N],
}

impl<'r, const N: usize> Taken<'r, N> {
    /// The request itself.
    pub fn incoming(&self) -> &'r Incoming {
        self.incoming
    }

    /// The small arguments.
    pub fn arguments(&self) -> TakenArguments<'r> {
        TakenArguments { rest: self.incoming.argument() }
    }

    /// The output `index`, which is the argument `name`.
    pub fn output<T: PlainData>(&self, index: usize, name: &str) -> Result<Output<'r, T>, ServerError> {
        Output::new(self.incoming.output(index)?).map_err(|why| unfit(name, &why))
    }

    /// The input `index`, which is the argument `name`.
    pub fn input<T: PlainData>(&self, index: usize, name: &str) -> Result<Input<'r, T>, ServerError> {
        Input::new(self.incoming.input(index)?, &self.actual[index]).map_err(|why| unfit(name, &why))
    }
}

/// The arguments of a request that are not decoded yet.
#[derive(Debug)]
pub struct TakenArguments<'r> {
    rest: &'r [u8],
}

impl<'r> TakenArguments<'r> {
    /// Decodes the next argument, which is the argument `name`.
    #[inline]
    pub fn next<C: Decode<'r, T>, T>(&mut self, name: &str) -> Result<T, ServerError> {
        C::decode(&mut self.rest).map_err(|why| unfit(name, &why))
    }

    /// Makes sure that there are no more arguments.
    #[inline]
    pub fn end(self) -> Result<(), ServerError> {
        ensure_empty(self.rest)
            .map_err(|why| ServerError::new(format!("the arguments cannot be decoded: {why}")))
    }
}

#[cold]
fn unfit(name: &str, why: &str) -> ServerError {
    ServerError::new(format!("the argument {name} cannot be decoded: {why}"))
}

/// Tells the signature of the method whose number is the only argument.
pub fn describe(incoming: Incoming, methods: &[Method]) {
    answer::<0, Serde, String, ServerError>(incoming, [], |request| {
        let mut arguments = request.arguments();
        let number: u32 = arguments.next::<Serde, _>("number")?;
        arguments.end()?;
        let method = methods.get(number as usize);
        let method = method.ok_or_else(|| ServerError::new(format!("there is no method number {number}")))?;
        Ok(Ok(method.signature.chars().take(LONGEST).collect()))
    });
}
