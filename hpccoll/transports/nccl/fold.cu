// The fold kernel: out[k] = fold(inputs[0][k], inputs[1][k], ...), optionally divided, for many ranges in one launch.
//
// Macros: STORED, the type in memory; COMPUTED, the type of computation; KIND, one of INTEGER, REAL, HALF and BFLOAT16;
// OP, one of SUM, PROD, MIN and MAX; THREADS; UNROLL. The file includes no headers, so that NVRTC needs none.
//
// A row of `folds` describes a range: the address of out, the index of its first input in `inputs`, the number of inputs,
// the number of elements, its first tile, the divisor or 0, and the elements before the first aligned vector. A block
// processes one tile of one range.

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
__device__ __forceinline__ unsigned short narrowed(float value) {  // round to nearest even
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (unsigned short)(bits >> 16 | 0x40);  // NaN
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
__device__ __forceinline__ COMPUTED widened(STORED stored) { return (COMPUTED)stored; }
__device__ __forceinline__ STORED narrowed(COMPUTED value) { return (STORED)value; }
#endif

// Arithmetic of float as instructions without .ftz: CuPy compiles with -ftz=true, under which subnormals become zeros.
template <typename T> __device__ __forceinline__ T sum(T x, T y) { return x + y; }
template <typename T> __device__ __forceinline__ T product(T x, T y) { return x * y; }
template <typename T> __device__ __forceinline__ T quotient(T x, T y) { return x / y; }
template <typename T> __device__ __forceinline__ bool less(T x, T y) { return x < y; }
template <typename T> __device__ __forceinline__ bool is_nan(T x) { return x != x; }
__device__ __forceinline__ float sum(float x, float y) {
    float result;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
__device__ __forceinline__ float product(float x, float y) {
    float result;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
__device__ __forceinline__ float quotient(float x, float y) {
    float result;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
__device__ __forceinline__ bool less(float x, float y) {
    int result;
    asm("{ .reg .pred p; setp.lt.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }" : "=r"(result) : "f"(x), "f"(y));
    return result;
}
__device__ __forceinline__ bool is_nan(float x) { return (__float_as_uint(x) & 0x7fffffff) > 0x7f800000; }

// The result of each fold is rounded to the type in memory, so that a fused fold equals the separate folds. Sums and
// products of integers wrap, and are therefore computed unsigned. Min and max propagate NaN, as in NumPy.
__device__ __forceinline__ STORED folded(STORED a, STORED b) {
    COMPUTED x = widened(a), y = widened(b);
#if OP == SUM
    return narrowed(sum(x, y));
#elif OP == PROD
    return narrowed(product(x, y));
#elif KIND == INTEGER
    return OP == MIN ? (a < b ? a : b) : (a > b ? a : b);
#else
    return (OP == MIN ? less(x, y) : less(y, x)) || is_nan(x) ? a : b;
#endif
}

__device__ __forceinline__ STORED divided(STORED value, long long divisor) {
#if KIND == INTEGER
    if (sizeof(STORED) == 1 && divisor > 255) return 0;  // a byte does not hold the divisor
    STORED by = (STORED)divisor, quotient = value / by;
    return quotient - (value % by != 0 && (long long)value < 0);
#else
    return narrowed(quotient(widened(value), (COMPUTED)divisor));
#endif
}

union Vector {  // the unit of loads and stores
    uint4 whole;
    STORED element[WIDTH];
};

__device__ __forceinline__ void one(STORED* out, const long long* inputs, int count, long long divisor, long long at) {
    STORED value = ((const STORED*)inputs[0])[at];
    for (int input = 1; input < count; ++input) value = folded(value, ((const STORED*)inputs[input])[at]);
    out[at] = divisor ? divided(value, divisor) : value;
}

// Fold one tile of a range, with all threads of the block.
__device__ __forceinline__ void fold_tile(const long long* row, const long long* inputs, long long tile) {
    STORED* out = (STORED*)row[0];
    inputs += row[1];
    const int count = (int)row[2];
    const long long elements = row[3], divisor = row[5], head = row[6];
    const int me = threadIdx.x;

    if (head == elements) {  // the alignments differ: process single elements
        const long long begin = tile * TILE * WIDTH, behind = begin + (long long)TILE * WIDTH, end = behind < elements ? behind : elements;
        for (long long at = begin + me; at < end; at += THREADS) one(out, inputs, count, divisor, at);
        return;
    }

    const long long vectors = (elements - head) / WIDTH, rest = elements - head - vectors * WIDTH;
    if (tile == 0)
        for (long long at = me; at < head + rest; at += THREADS)
            one(out, inputs, count, divisor, at < head ? at : elements - rest + (at - head));

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

// With a demand of two blocks on a multiprocessor the assembler takes up to 128 registers; without one it saves some, and
// spills a few bytes of each thread.
extern "C" __global__ void __launch_bounds__(THREADS, 2) fold(const long long* folds, const long long* inputs, int ranges) {
    int first = 0, last = ranges - 1;  // binary search for the last range that starts at or before this block's tile
    while (first < last) {
        int middle = (first + last + 1) / 2;
        if (folds[middle * ROW + 4] <= (long long)blockIdx.x) first = middle; else last = middle - 1;
    }
    const long long* row = folds + first * ROW;
    fold_tile(row, inputs, blockIdx.x - row[4]);
}
