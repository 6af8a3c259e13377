// Copyright phub contributors. SPDX-License-Identifier: Apache-2.0
//
// Compares a Verilated FP32 unit with this machine's IEEE arithmetic, one operation a cycle: all pairs of corner
// values, then random ones. Prints what it compared; exits with 1 at the first difference.
//
//   bench SEED MILLIONS
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include UNIT_HEADER
#include "verilated.h"

static uint32_t bits(float value) {
    uint32_t b;
    memcpy(&b, &value, 4);
    return b;
}

static float number(uint32_t b) {
    float value;
    memcpy(&value, &b, 4);
    return value;
}

static uint32_t canonical(float value) { return value != value ? 0x7fc00000u : bits(value); }

static uint64_t state;
static uint32_t random32() {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((z ^ (z >> 31)) >> 16);
}

// A second operand whose exponent is near the first one's, where alignment and cancellation happen.
static uint32_t near(uint32_t a) {
    int exponent = static_cast<int>(a >> 23 & 0xff) + static_cast<int>(random32() % 57) - 28;
    if (exponent < 0) exponent = 0;
    if (exponent > 255) exponent = 255;
    return (random32() & 0x807fffffu) | static_cast<uint32_t>(exponent) << 23;
}

static std::vector<uint32_t> corners() {
    std::vector<uint32_t> all;
    for (uint32_t exponent : {0, 1, 2, 23, 24, 25, 26, 100, 126, 127, 128, 150, 151, 152, 252, 253, 254, 255})
        for (uint32_t fraction : {0u, 1u, 2u, 3u, 4u, 0x3fffffu, 0x400000u, 0x400001u, 0x555555u, 0x7ffffdu, 0x7ffffeu, 0x7fffffu})
            for (uint32_t sign : {0u, 0x80000000u}) all.push_back(sign | exponent << 23 | fraction);
    return all;
}

static VerilatedContext context;
static UNIT_CLASS unit{&context};
static uint32_t expected[UNIT_LATENCY], first[UNIT_LATENCY], second[UNIT_LATENCY];
static bool valid[UNIT_LATENCY];
static uint64_t fed, compared;
static unsigned stages;  // bit k: what was fed k cycles ago is an operation

static void cycle(bool operation, uint32_t a, uint32_t b) {
    stages = (stages << 1 | operation) & ((1u << UNIT_LATENCY) - 1);
    unit.stage_i = stages;
#ifdef UNIT_IS_MEAN
    unit.value_i = a;
    unit.count_i = b;
    const uint32_t right = canonical(number(a) / static_cast<float>(b));
#else
    unit.a_i = a;
    unit.b_i = b;
    const uint32_t right = canonical(number(a) + number(b));
#endif
    unit.clk_i = 0;
    unit.eval();
    // What was fed UNIT_LATENCY cycles ago stands at the output until the next edge.
    const unsigned place = fed % UNIT_LATENCY;
#ifdef UNIT_IS_MEAN
    const uint32_t got = unit.mean_o;
#else
    const uint32_t got = unit.sum_o;
#endif
    if (valid[place]) {
        if (got != expected[place]) {
            printf("%08x, %08x: got %08x, expected %08x\n", first[place], second[place], got, expected[place]);
            exit(1);
        }
        compared++;
    }
    valid[place] = operation;
    expected[place] = right;
    first[place] = a;
    second[place] = b;
    fed++;
    unit.clk_i = 1;
    unit.eval();
}

// One operation, now and then after cycles without one.
static void feed(uint32_t a, uint32_t b) {
    while (random32() % 8 == 0) cycle(false, random32(), 1 + random32() % 64);
    cycle(true, a, b);
}

int main(int count, char** arguments) {
    if (count != 3) return 2;
    state = strtoull(arguments[1], nullptr, 0);
    const uint64_t random = strtoull(arguments[2], nullptr, 0) * 1000000;
    const std::vector<uint32_t> all = corners();
#ifdef UNIT_IS_MEAN
    for (uint32_t n = 1; n <= 64; n++)
        for (uint32_t a : all) feed(a, n);
    for (uint64_t i = 0; i < random; i++) feed(random32(), 1 + random32() % 64);
    // Significands at which a quotient is near a tie, and results that become subnormal.
    for (uint64_t i = 0; i < random; i++) feed((random32() & 0x807fffffu) | (random32() % 10) << 23, 1 + random32() % 64);
#else
    for (uint32_t a : all)
        for (uint32_t b : all) feed(a, b);
    for (uint64_t i = 0; i < random; i++) feed(random32(), random32());
    for (uint64_t i = 0; i < random; i++) {
        const uint32_t a = random32();
        feed(a, near(a));
    }
#endif
    for (int i = 0; i < UNIT_LATENCY; i++) cycle(false, 0, 1);
    printf("%llu operations compared\n", static_cast<unsigned long long>(compared));
    return 0;
}
