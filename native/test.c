// Tries the functions of memory.c against loops over single bytes: all lengths up to 300 and some beyond, all positions
// within a block, all distances of overlap. memory.c is built with its functions renamed, see `tests/memory.rs`.

#include <stdio.h>
#include <stdlib.h>

#define memmove own_memmove
#define memcpy own_memcpy
#define memset own_memset
#define memcmp own_memcmp
#define bcmp own_bcmp
#define alias(name) alias("own_" name)
#include "memory.c"

#define SPACE 8192

static unsigned char bytes[SPACE], expected[SPACE], copy[SPACE];

static void fail(const char *what, size_t length, size_t from, size_t to) {
    printf("%s: length %zu, from %zu, to %zu\n", what, length, from, to);
    exit(1);
}

static void fill(unsigned char *target) {
    for (size_t at = 0; at < SPACE; at++) {
        target[at] = (unsigned char)(at * 31 + at / 251);
    }
}

static void check(const char *what, size_t length, size_t from, size_t to) {
    for (size_t at = 0; at < SPACE; at++) {
        if (bytes[at] != expected[at]) {
            fail(what, length, from, to);
        }
    }
}

static void moves(size_t length, size_t from, size_t to) {
    fill(bytes);
    fill(copy);
    fill(expected);
    for (size_t at = 0; at < length; at++) {
        expected[to + at] = copy[from + at];
    }
    if (memmove(bytes + to, bytes + from, length) != bytes + to) {
        fail("memmove returns something else", length, from, to);
    }
    check("memmove", length, from, to);
    fill(bytes);
    if (memcpy(bytes + to, copy + from, length) != bytes + to) {
        fail("memcpy returns something else", length, from, to);
    }
    check("memcpy", length, from, to);
}

static void sets(size_t length, size_t to) {
    fill(bytes);
    fill(expected);
    for (size_t at = 0; at < length; at++) {
        expected[to + at] = 0xa5;
    }
    if (memset(bytes + to, 0x7fa5, length) != bytes + to) {
        fail("memset returns something else", length, 0, to);
    }
    check("memset", length, 0, to);
}

static int sign(int value) { return (value > 0) - (value < 0); }

static void compares(size_t length, size_t from, size_t to) {
    fill(bytes);
    for (size_t at = 0; at < length; at++) {
        copy[to + at] = bytes[from + at];
    }
    // What stands beside must not count.
    copy[to + length] = (unsigned char)~bytes[from + length];
    if (memcmp(bytes + from, copy + to, length) != 0 || bcmp(bytes + from, copy + to, length) != 0) {
        fail("memcmp of what is alike", length, from, to);
    }
    for (size_t at = 0; at < length; at++) {
        unsigned char kept = copy[to + at];
        // A later byte differs the other way round.
        if (at + 1 < length) {
            copy[to + at + 1] = (unsigned char)(bytes[from + at + 1] ^ 0x80);
        }
        copy[to + at] = (unsigned char)(kept + 0x80);
        int right = sign((int)bytes[from + at] - (int)copy[to + at]);
        if (sign(memcmp(bytes + from, copy + to, length)) != right || bcmp(bytes + from, copy + to, length) == 0) {
            fail("memcmp of what differs", length, from, to);
        }
        copy[to + at] = kept;
        if (at + 1 < length) {
            copy[to + at + 1] = bytes[from + at + 1];
        }
    }
}

int main(void) {
    for (size_t length = 0; length <= 300; length++) {
        for (size_t position = 0; position < 16; position++) {
            moves(length, 1024 + position, 2048);
            moves(length, 1024, 2048 + position);
            sets(length, 1024 + position);
            compares(length, 512 + position, 1024);
        }
        for (size_t distance = 0; distance <= length; distance++) {
            moves(length, 1024, 1024 + distance);
            moves(length, 1024 + distance, 1024);
        }
    }
    for (size_t length = 2000; length < 2100; length++) {
        for (size_t distance = 0; distance < 40; distance++) {
            moves(length, 1024, 1024 + distance);
            moves(length, 1024 + distance, 1024);
            moves(length, 1024, 4096 + distance);
        }
        sets(length, 1024);
        compares(length, 1, 3000);
    }
    return 0;
}
