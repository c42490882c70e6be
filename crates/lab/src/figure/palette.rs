//! The colours of drawings: Okabe and Ito's, which colour-blind readers can tell apart.
//!
//! Why: a drawing in a page must follow the page's light or dark; one in a file of its own must be readable by whatever
//! program opens it, and many of those know no variables.

/// Black, in a drawing that is printed.
pub const BLACK: &str = "#000000";
/// Okabe and Ito's orange.
pub const ORANGE: &str = "#E69F00";
/// Their sky blue.
pub const SKY: &str = "#56B4E9";
/// Their bluish green.
pub const GREEN: &str = "#009E73";
/// Their blue.
pub const BLUE: &str = "#0072B2";
/// Their vermilion.
pub const VERMILION: &str = "#D55E00";
/// Their reddish purple.
pub const PURPLE: &str = "#CC79A7";
/// In place of their yellow, which is hard to see on white.
pub const GREY: &str = "#808080";

/// What is drawn in a colour of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// That of text.
    Black,
    /// Orange.
    Orange,
    /// Sky blue.
    Sky,
    /// Bluish green.
    Green,
    /// Blue.
    Blue,
    /// Vermilion.
    Vermilion,
    /// Reddish purple.
    Purple,
    /// Grey.
    Grey,
}

impl Hue {
    /// All of them, those first that differ most.
    pub const ALL: [Self; 8] = [
        Self::Black,
        Self::Blue,
        Self::Vermilion,
        Self::Green,
        Self::Orange,
        Self::Purple,
        Self::Sky,
        Self::Grey,
    ];
}

/// Which colours a drawing is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Fixed ones, on white.
    Printed,
    /// Those that the page around it names.
    OfPage,
}

impl Ink {
    /// The colour of a curve.
    pub fn hue(self, hue: Hue) -> &'static str {
        let (printed, of_page) = match hue {
            Hue::Black => (BLACK, "var(--ink)"),
            Hue::Orange => (ORANGE, "var(--orange)"),
            Hue::Sky => (SKY, "var(--sky)"),
            Hue::Green => (GREEN, "var(--green)"),
            Hue::Blue => (BLUE, "var(--blue)"),
            Hue::Vermilion => (VERMILION, "var(--vermilion)"),
            Hue::Purple => (PURPLE, "var(--purple)"),
            Hue::Grey => (GREY, "var(--grey)"),
        };
        self.either(printed, of_page)
    }

    /// The colour of letters.
    pub fn text(self) -> &'static str {
        self.either("#1c1c1a", "var(--ink)")
    }

    /// The colour of axes.
    pub fn axis(self) -> &'static str {
        self.either("#6b6b66", "var(--muted)")
    }

    /// The colour of the grid.
    pub fn grid(self) -> &'static str {
        self.either("#e7e6e1", "var(--line)")
    }

    /// The colour behind everything.
    pub fn ground(self) -> &'static str {
        self.either("#ffffff", "var(--paper)")
    }

    fn either(self, printed: &'static str, of_page: &'static str) -> &'static str {
        match self {
            Self::Printed => printed,
            Self::OfPage => of_page,
        }
    }
}
