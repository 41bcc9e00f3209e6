/* Folds and scales: element by element, in the order of NumPy's ufuncs, with their results bit for bit, except
 * that one NaN may stand for another.
 *
 * Integers wrap (-fwrapv), minimum and maximum propagate NaN, and numbers of two bytes are computed as float32 and
 * rounded to even. The target may be one of the operands; no buffers overlap in any other way.
 */
#include "executor.h"

#include <stddef.h>
#include <string.h>

/* The same code for processors with AVX2 and F16C, chosen when the library is loaded. The sanitizers' runtime is not
 * ready yet when the choice is made. */
#if !defined(__x86_64__) || !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define CLONES
#elif __GNUC__ >= 12
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else /* knows no levels of x86-64, and has no float16 */
#define CLONES __attribute__((target_clones("default", "avx2")))
#endif

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define MINIMUM(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAXIMUM(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define SAME(x) (x)

#define FOLD(name, type, wide, load, store, combine)                                                  \
    CLONES static void name(void *target, const void *a, const void *b, int64_t count) {                     \
        type *out = target;                                                                           \
        const type *left = a, *right = b;                                                             \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) {                                    \
            const wide x = load(left[i]), y = load(right[i]);                                         \
            out[i] = (type)store(combine(x, y));                                                      \
        }                                                                                             \
    }

#define FOLDS(dtype, type, wide, load, store)                      \
    FOLD(add_##dtype, type, wide, load, store, ADD)                \
    FOLD(multiply_##dtype, type, wide, load, store, MULTIPLY)      \
    FOLD(minimum_##dtype, type, wide, load, store, MINIMUM)        \
    FOLD(maximum_##dtype, type, wide, load, store, MAXIMUM)

#define SCALE(dtype, type, wide, load, store)                                       \
    CLONES static void scale_##dtype(void *target, int64_t count, int64_t workers) {       \
        type *out = target;                                                         \
        const wide divisor = (wide)workers;                                         \
        for (int64_t i = 0; i < count; i++) out[i] = (type)store(load(out[i]) / divisor); \
    }

#define SCALE_DOWN(dtype, type)                                                     \
    static void scale_##dtype(void *target, int64_t count, int64_t workers) {              \
        type *out = target;                                                         \
        const type divisor = (type)workers;                                         \
        for (int64_t i = 0; i < count; i++) {                                       \
            const type quotient = out[i] / divisor;                                 \
            out[i] = quotient - (quotient * divisor > out[i]);                      \
        }                                                                           \
    }

static inline float from_bfloat16(uint16_t number) {
    const uint32_t bits = (uint32_t)number << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline uint16_t to_bfloat16(float wide) {
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN must not round to infinity */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

FOLDS(uint8, uint8_t, uint8_t, SAME, SAME)
FOLDS(int32, int32_t, int32_t, SAME, SAME)
FOLDS(int64, int64_t, int64_t, SAME, SAME)
FOLDS(float32, float, float, SAME, SAME)
FOLDS(float64, double, double, SAME, SAME)
FOLDS(bfloat16, uint16_t, float, from_bfloat16, to_bfloat16)
SCALE_DOWN(int32, int32_t)
SCALE_DOWN(int64, int64_t)
SCALE(float32, float, float, SAME, SAME)
SCALE(float64, double, double, SAME, SAME)
SCALE(bfloat16, uint16_t, float, from_bfloat16, to_bfloat16)

#ifdef __FLT16_MANT_DIG__
FOLDS(float16, _Float16, float, SAME, SAME)
SCALE(float16, _Float16, float, SAME, SAME)
#define FLOAT16(name) name##_float16
#else
#define FLOAT16(name) NULL
#endif

#define KERNELS(first, name)                                                                                   \
    [first + DTYPE_INT32] = name##_int32, [first + DTYPE_INT64] = name##_int64,                                \
    [first + DTYPE_FLOAT16] = FLOAT16(name), [first + DTYPE_FLOAT32] = name##_float32,                         \
    [first + DTYPE_FLOAT64] = name##_float64, [first + DTYPE_BFLOAT16] = name##_bfloat16
#define FOLD_KERNELS(operation, name) \
    [operation * DTYPES + DTYPE_UINT8] = name##_uint8, KERNELS(operation * DTYPES, name)

fold_t *const fold_kernels[] = {
    FOLD_KERNELS(OPERATION_ADD, add), FOLD_KERNELS(OPERATION_MULTIPLY, multiply),
    FOLD_KERNELS(OPERATION_MINIMUM, minimum), FOLD_KERNELS(OPERATION_MAXIMUM, maximum),
};
scale_t *const scale_kernels[DTYPES] = {KERNELS(0, scale)}; /* bytes are tokens, which have no average */

HPCCOLL_API int hpccoll_has_fold(int kernel) { return fold_kernels[kernel] != NULL; }

void do_work(const work_t *work, int64_t count) {
    for (const work_t *end = work + count; work < end; work++) {
        if (work->kind == WORK_COPY)
            memcpy(work->target, work->a, (size_t)work->count);
        else if (work->kind == WORK_FOLD)
            fold_kernels[work->kernel](work->target, work->a, work->b, work->count);
        else
            scale_kernels[work->kernel](work->target, work->count, work->workers);
    }
}
