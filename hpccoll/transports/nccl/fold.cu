// Folds: out[k] = fold(inputs[0][k], inputs[1][k], ...), then perhaps divided, for many ranges in one launch.
//
// Compiled with STORED, the type in memory; COUNTED, the type that is computed with; KIND, one of INTEGER, REAL, HALF and
// BFLOAT16; OP, one of SUM, PROD, MIN and MAX; THREADS and UNROLL. It includes no header, so that NVRTC needs none.
//
// A row of `folds` is a range: the address of out, where its inputs begin in `inputs`, how many they are, elements, the
// first tile, the divisor or 0, and how many elements precede the first vector. A block takes one tile of one range.

#define INTEGER 0
#define REAL 1
#define HALF 2
#define BFLOAT16 3
#define SUM 0
#define PROD 1
#define MIN 2
#define MAX 3

#define ROW 7
#define WIDTH (16 / (int)sizeof(STORED))
#define TILE (THREADS * UNROLL)

#if KIND == BFLOAT16
__device__ __forceinline__ float widened(unsigned short stored) {
    return __uint_as_float((unsigned)stored << 16);
}
__device__ __forceinline__ unsigned short narrowed(float value) {  // to the nearest, and of two to the even one
    unsigned bits = __float_as_uint(value);
    if (value != value) return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#elif KIND == HALF
__device__ __forceinline__ float widened(unsigned short stored) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
    return value;
}
__device__ __forceinline__ unsigned short narrowed(float value) {
    unsigned short stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(value));
    return stored;
}
#else
__device__ __forceinline__ COUNTED widened(STORED stored) { return (COUNTED)stored; }
__device__ __forceinline__ STORED narrowed(COUNTED value) { return (STORED)value; }
#endif

// Each fold is rounded to the type in memory, so that a chain of them is what the folds one by one are. Sums and products
// of integers wrap, for which they are counted without a sign. A NaN comes through min and max, as NumPy has it.
__device__ __forceinline__ STORED folded(STORED a, STORED b) {
    COUNTED x = widened(a), y = widened(b);
#if OP == SUM
    return narrowed(x + y);
#elif OP == PROD
    return narrowed(x * y);
#elif KIND == INTEGER
    return OP == MIN ? (a < b ? a : b) : (a > b ? a : b);
#else
    return (OP == MIN ? x < y : x > y) || x != x ? a : b;
#endif
}

__device__ __forceinline__ STORED divided(STORED value, long long divisor) {
#if KIND == INTEGER
    STORED by = (STORED)divisor, quotient = value / by;
    return quotient - (value % by != 0 && (long long)value < 0);
#else
    return narrowed(widened(value) / (COUNTED)divisor);
#endif
}

union Vector {  // what is loaded and stored at once
    uint4 whole;
    STORED element[WIDTH];
};

__device__ __forceinline__ void one(STORED* out, const long long* inputs, int count, long long divisor, long long at) {
    STORED value = ((const STORED*)inputs[0])[at];
    for (int input = 1; input < count; ++input) value = folded(value, ((const STORED*)inputs[input])[at]);
    out[at] = divisor ? divided(value, divisor) : value;
}

extern "C" __global__ void __launch_bounds__(THREADS) fold(const long long* folds, const long long* inputs, int ranges) {
    int first = 0, last = ranges - 1;  // the range of this block's tile is the last that does not begin behind it
    while (first < last) {
        int middle = (first + last + 1) / 2;
        if (folds[middle * ROW + 4] <= (long long)blockIdx.x) first = middle; else last = middle - 1;
    }
    const long long* row = folds + first * ROW;
    STORED* out = (STORED*)row[0];
    inputs += row[1];
    const int count = (int)row[2];
    const long long elements = row[3], tile = blockIdx.x - row[4], divisor = row[5], head = row[6];
    const int me = threadIdx.x;

    if (head == elements) {  // the buffers do not lie alike: one element after the other
        const long long begin = tile * TILE * WIDTH, behind = begin + (long long)TILE * WIDTH, end = behind < elements ? behind : elements;
        for (long long at = begin + me; at < end; at += THREADS) one(out, inputs, count, divisor, at);
        return;
    }

    const long long vectors = (elements - head) / WIDTH, rest = elements - head - vectors * WIDTH;
    if (tile == 0 && me < head + rest)
        one(out, inputs, count, divisor, me < head ? me : elements - rest + (me - head));

    const long long begin = tile * TILE + me;
    Vector value[UNROLL], arrival[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i)
        if (begin + i * THREADS < vectors) value[i].whole = ((const uint4*)((const STORED*)inputs[0] + head))[begin + i * THREADS];
    for (int input = 1; input < count; ++input) {
        const uint4* from = (const uint4*)((const STORED*)inputs[input] + head);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (begin + i * THREADS < vectors) arrival[i].whole = from[begin + i * THREADS];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) value[i].element[k] = folded(value[i].element[k], arrival[i].element[k]);
    }
    if (divisor)
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) value[i].element[k] = divided(value[i].element[k], divisor);
#pragma unroll
    for (int i = 0; i < UNROLL; ++i)
        if (begin + i * THREADS < vectors) ((uint4*)(out + head))[begin + i * THREADS] = value[i].whole;
}
