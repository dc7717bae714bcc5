// memcpy, memmove, memset and memcmp for the static program, in place of musl's.
//
// musl compares byte by byte, and on x86_64 copies with a string instruction, which takes longer to start than most copies
// take. These functions use vectors of 16 bytes, which x86_64 and aarch64 always have: the first and the last bytes of the
// memory are loaded before anything is stored, and may overlap, so that no length needs a loop over single bytes.
//
// musl calls them before it has set up a stack protector, and the compiler may not turn a loop in here into a call of the
// function that it stands in: `build.rs` says so to the compiler. `test.c` tries all lengths.

#include <stddef.h>
#include <stdint.h>

typedef uint8_t Block __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t Word __attribute__((aligned(1), may_alias));
typedef uint32_t Half __attribute__((aligned(1), may_alias));
typedef uint8_t Byte __attribute__((may_alias));

// What is at an address, as a value of one of these types.
#define AT(type, address, offset) (*(type *)((char *)(address) + (offset)))

// From this length on the string instructions of x86_64 are faster than a loop (glibc uses the same limit).
#define LARGE 2048

// 16 bytes at most.
static inline void move_few(void *to, const void *from, size_t length) {
    if (length >= 8) {
        Word first = AT(Word, from, 0), last = AT(Word, from, length - 8);
        AT(Word, to, 0) = first;
        AT(Word, to, length - 8) = last;
    } else if (length >= 4) {
        Half first = AT(Half, from, 0), last = AT(Half, from, length - 4);
        AT(Half, to, 0) = first;
        AT(Half, to, length - 4) = last;
    } else if (length > 0) {
        Byte first = AT(Byte, from, 0), middle = AT(Byte, from, length / 2), last = AT(Byte, from, length - 1);
        AT(Byte, to, 0) = first;
        AT(Byte, to, length / 2) = middle;
        AT(Byte, to, length - 1) = last;
    }
}

void *memmove(void *to, const void *from, size_t length) {
    if (length <= 16) {
        move_few(to, from, length);
        return to;
    }
    Block first = AT(Block, from, 0), last = AT(Block, from, length - 16);
    if (length > 32) {
        Block second = AT(Block, from, 16), second_last = AT(Block, from, length - 32);
        if (length > 64) {
            if ((uintptr_t)to - (uintptr_t)from >= length) {
#ifdef __x86_64__
                if (length >= LARGE) {
                    void *end = to;
                    __asm__ volatile("rep movsb" : "+D"(end), "+S"(from), "+c"(length) : : "memory");
                    return to;
                }
#endif
                for (size_t at = 32; at < length - 32; at += 32) {
                    Block one = AT(Block, from, at), other = AT(Block, from, at + 16);
                    AT(Block, to, at) = one;
                    AT(Block, to, at + 16) = other;
                }
            } else {
                // The target begins within the source: backwards.
                for (size_t at = length - 32; at > 32;) {
                    at -= 32;
                    Block one = AT(Block, from, at), other = AT(Block, from, at + 16);
                    AT(Block, to, at) = one;
                    AT(Block, to, at + 16) = other;
                }
            }
        }
        AT(Block, to, 16) = second;
        AT(Block, to, length - 32) = second_last;
    }
    AT(Block, to, 0) = first;
    AT(Block, to, length - 16) = last;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t length) __attribute__((alias("memmove")));

void *memset(void *to, int byte, size_t length) {
    Word word = 0x0101010101010101 * (uint64_t)(Byte)byte;
    if (length <= 16) {
        if (length >= 8) {
            AT(Word, to, 0) = word;
            AT(Word, to, length - 8) = word;
        } else if (length >= 4) {
            AT(Half, to, 0) = (Half)word;
            AT(Half, to, length - 4) = (Half)word;
        } else if (length > 0) {
            AT(Byte, to, 0) = (Byte)byte;
            AT(Byte, to, length / 2) = (Byte)byte;
            AT(Byte, to, length - 1) = (Byte)byte;
        }
        return to;
    }
#ifdef __x86_64__
    if (length >= LARGE) {
        void *end = to;
        __asm__ volatile("rep stosb" : "+D"(end), "+c"(length) : "a"(byte) : "memory");
        return to;
    }
#endif
    Block block = (Block){0} + (Byte)byte;
    for (size_t at = 0; at < length - 16; at += 16) {
        AT(Block, to, at) = block;
    }
    AT(Block, to, length - 16) = block;
    return to;
}

// How words that differ compare as the bytes that they were loaded from: both architectures are little-endian.
static inline int order(uint64_t one, uint64_t other) {
    return __builtin_bswap64(one) < __builtin_bswap64(other) ? -1 : 1;
}

int memcmp(const void *one, const void *other, size_t length) {
    if (length < 8) {
        if (length >= 4) {
            Half first = AT(Half, one, 0), second = AT(Half, other, 0);
            if (first == second) {
                first = AT(Half, one, length - 4);
                second = AT(Half, other, length - 4);
            }
            return first == second ? 0 : order(first, second);
        }
        for (size_t at = 0; at < length; at++) {
            int difference = AT(Byte, one, at) - AT(Byte, other, at);
            if (difference != 0) {
                return difference;
            }
        }
        return 0;
    }
    for (size_t at = 0; at < length - 8; at += 8) {
        Word first = AT(Word, one, at), second = AT(Word, other, at);
        if (first != second) {
            return order(first, second);
        }
    }
    Word first = AT(Word, one, length - 8), second = AT(Word, other, length - 8);
    return first == second ? 0 : order(first, second);
}

int bcmp(const void *one, const void *other, size_t length) __attribute__((alias("memcmp")));
