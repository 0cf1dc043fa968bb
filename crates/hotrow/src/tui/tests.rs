mod display_state;
mod frames;
mod mode;
mod painter;
mod terminal;
