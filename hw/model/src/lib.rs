//! Golden model of the card: rings, slots and arithmetic, without a clock.
