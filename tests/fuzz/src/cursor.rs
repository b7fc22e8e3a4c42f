//! Choices derived from bytes. After the last byte, every choice is the first option.

/// The remaining bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `count`, or 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number.checked_rem(count).unwrap_or(0)
    }

    /// One item of a list.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T; 16]) -> T {
        list[usize::from(self.byte() % 16)]
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
