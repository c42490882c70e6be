//! The colours of drawings: eight colours that stand out from their background, and that colour-blind readers can tell
//! apart.
//!
//! Why: a drawing in a page must follow the page's light or dark; a drawing in a file of its own must be readable in
//! whatever program opens it, and many programs do not know variables.
//! How: each hue has one colour for light grounds and one for dark grounds. No single set can serve both: colours that stand
//! out from both grounds lie in a third of the range of lightness, which is too narrow for eight.
//! Invariants: every colour has a contrast of 3 or more with its ground, as WCAG 2.2 asks of graphics (success criterion
//! 1.4.11), and any two are distinct for readers who lack any one kind of cones. The tests of this file compute both.

use std::fmt::Write;

/// The ground of a drawing that is printed.
const WHITE: &str = "#ffffff";

/// The hue of something that is drawn in a colour of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// The colour of text.
    Black,
    /// Amber: brown on light grounds, yellow on dark ones.
    Amber,
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

/// A hue's colours on light and on dark grounds, and the page's variable that holds the right one of the two.
struct Colours {
    light: &'static str,
    dark: &'static str,
    variable: &'static str,
}

impl Hue {
    /// All hues; those that differ most come first.
    pub const ALL: [Self; 8] = [
        Self::Black,
        Self::Blue,
        Self::Vermilion,
        Self::Green,
        Self::Amber,
        Self::Purple,
        Self::Sky,
        Self::Grey,
    ];

    /// The name of the page's variable.
    fn name(self) -> &'static str {
        self.colours().variable.trim_start_matches("var(").trim_end_matches(')')
    }

    const fn colours(self) -> Colours {
        match self {
            Self::Black => Colours { light: "#000000", dark: "#e9e7e2", variable: "var(--black)" },
            Self::Amber => Colours { light: "#6a3b01", dark: "#ecc509", variable: "var(--amber)" },
            Self::Sky => Colours { light: "#148ae8", dark: "#5ec2ff", variable: "var(--sky)" },
            Self::Green => Colours { light: "#167259", dark: "#38b35f", variable: "var(--green)" },
            Self::Blue => Colours { light: "#323a9b", dark: "#5773e1", variable: "var(--blue)" },
            Self::Vermilion => Colours { light: "#e26706", dark: "#c22a04", variable: "var(--vermilion)" },
            Self::Purple => Colours { light: "#a652a4", dark: "#fe89b8", variable: "var(--purple)" },
            Self::Grey => Colours { light: "#909090", dark: "#656565", variable: "var(--grey)" },
        }
    }
}

/// The style of a page that names all hues, by the reader's preference.
pub fn variables() -> String {
    let rule = |of: fn(Colours) -> &'static str| {
        Hue::ALL.iter().fold(String::new(), |mut rule, hue| {
            let _ = write!(rule, " {}: {};", hue.name(), of(hue.colours()));
            rule
        })
    };
    let (light, dark) = (rule(|colours| colours.light), rule(|colours| colours.dark));
    format!(":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n")
}

/// Which colours a drawing uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Fixed colours, on white.
    Printed,
    /// The colours that the page around it names.
    OfPage,
}

impl Ink {
    /// The colour of a curve.
    pub fn hue(self, hue: Hue) -> &'static str {
        let Colours { light, variable, .. } = hue.colours();
        self.either(light, variable)
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
        self.either(WHITE, "var(--paper)")
    }

    fn either(self, printed: &'static str, of_page: &'static str) -> &'static str {
        match self {
            Self::Printed => printed,
            Self::OfPage => of_page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast that most readers need to see graphics.
    const CONTRAST_MIN: f64 = 3.0;

    /// What dichromats see of linear light: without long, middle and short cones.
    /// Source: G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, "A Physiologically-based Model for Simulation of Color
    /// Vision Deficiency", 2009, table 1, severity 1.
    const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
        ("trichromats", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopes",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "deuteranopes",
            [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
        ),
        (
            "tritanopes",
            [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
        ),
    ];
    /// The least distance of two colours in Oklab, where black and white are 1 apart. Okabe and Ito's colours with a grey
    /// have 0.03.
    const APART: f64 = 0.1;

    /// The grounds of figures in a page, in its light and its dark theme.
    fn papers() -> [&'static str; 2] {
        let style = include_str!("../report/report.css");
        let mut papers = style.match_indices("--paper: ").map(|(at, name)| &style[at + name.len()..][..7]);
        let both = [papers.next().unwrap(), papers.next().unwrap()];
        assert_eq!(papers.next(), None);
        both
    }

    /// How far two colours differ in lightness, from 1 to 21.
    /// Source: WCAG 2.2, "relative luminance", "contrast ratio".
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour| {
            let [red, green, blue] = light_of(colour);
            0.2126 * red + 0.7152 * green + 0.0722 * blue
        };
        let [one, other] = [one, other].map(luminance);
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// How much red, green and blue light a screen gives for a colour `#rrggbb`, each from 0 to 1.
    fn light_of(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    #[test]
    fn contrasts_are_those_of_the_guidelines() {
        assert!((contrast("#000000", WHITE) - 21.0).abs() < 1e-9);
        // The lightest grey that WCAG allows for letters on white, and the next lighter grey.
        assert!(contrast("#767676", WHITE) >= 4.5 && contrast(WHITE, "#777777") < 4.5);
    }

    #[test]
    fn every_colour_stands_out_from_its_ground() {
        let [light, dark] = papers();
        for hue in Hue::ALL {
            let colours = hue.colours();
            for (colour, ground) in [(colours.light, WHITE), (colours.light, light), (colours.dark, dark)] {
                let contrast = contrast(colour, ground);
                assert!(contrast >= CONTRAST_MIN, "{hue:?}: {colour} on {ground} has {contrast:.2}");
            }
        }
    }

    #[test]
    fn readers_who_lack_a_kind_of_cones_can_tell_every_two_colours_apart() {
        for of in [|hue: Hue| hue.colours().light, |hue: Hue| hue.colours().dark] {
            for (readers, sight) in SIGHTS {
                for (index, one) in Hue::ALL.into_iter().enumerate() {
                    for other in Hue::ALL.into_iter().skip(index + 1) {
                        let [a, b] = [of(one), of(other)].map(|colour| oklab(seen(sight, light_of(colour))));
                        let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        assert!(apart >= APART, "{readers} see {one:?} and {other:?} {apart:.3} apart");
                    }
                }
            }
        }
    }

    fn seen(sight: [[f64; 3]; 3], light: [f64; 3]) -> [f64; 3] {
        sight
            .map(|row| row.iter().zip(light).map(|(factor, part)| factor * part).sum::<f64>().clamp(0.0, 1.0))
    }

    /// Lightness and two differences of colour.
    /// Source: B. Ottosson, "A perceptual color space for image processing", 2020.
    fn oklab(light: [f64; 3]) -> [f64; 3] {
        let times = |rows: [[f64; 3]; 3], of: [f64; 3]| {
            rows.map(|row| row.iter().zip(of).map(|(factor, part)| factor * part).sum::<f64>())
        };
        let cones = times(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ],
            light,
        );
        times(
            [
                [0.2104542553, 0.793617785, -0.0040720468],
                [1.9779984951, -2.428592205, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.808675766],
            ],
            cones.map(f64::cbrt),
        )
    }

    #[test]
    fn a_page_has_a_variable_for_each_hue_in_light_and_in_dark() {
        let style = variables();
        for hue in Hue::ALL {
            let name = hue.name();
            assert_eq!(style.matches(&format!(" {name}: #")).count(), 2, "{name} in {style}");
        }
    }
}
