//! Reports: content as plain values, rendered as text, Markdown and HTML.
//!
//! Reading order: [`document`] and [`plot`] (content without layout), [`numbers`] and [`note`]
//! (formats), [`text`], [`markdown`], [`html`] and `svg` (renderers).

mod chart_data;
pub mod document;
mod escape;
pub mod file;
pub mod html;
pub mod markdown;
pub mod note;
pub mod numbers;
pub mod plot;
mod script;
mod svg;
pub mod text;
