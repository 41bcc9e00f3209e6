// Fills buffers with periodic values, and counts the elements that differ from them, in segments of result_check_gpu.py.
//
// ITEMSIZE is the size of an element in bytes; a thread moves 16 bytes at once. The period is read again and again, so
// it stays in L2: a fill of S bytes writes S bytes of memory, a check reads S bytes.

typedef unsigned long long Word;

#if ITEMSIZE == 1
typedef unsigned char Element;
#elif ITEMSIZE == 2
typedef unsigned short Element;
#elif ITEMSIZE == 4
typedef unsigned int Element;
#elif ITEMSIZE == 8
typedef Word Element;
#endif

struct Segment {
    Word at;      // the address of the first vector of 16 bytes; its first elements may precede the segment
    Word first;   // the index of the segment's first element, counted from at
    Word stop;    // the index after its last element
    Word values;  // the address of the values, in vectors of 16 bytes
    Word period;  // the number of vectors after which the values repeat
    Word step;    // the number of vectors by which the values of the next generation begin later
};

#define PER_VECTOR (16 / sizeof(Element))

union Vector {
    uint4 whole;
    Element each[PER_VECTOR];
};

// Calls VISIT(vector, expected, begin, end) for elements [begin, end) of every vector of segment blockIdx.y.
#define FOR_ALL_VECTORS(VISIT)                                                                                     \
    const Segment s = segments[blockIdx.y];                                                                        \
    const Word stride = (Word)gridDim.x * blockDim.x, hop = stride % s.period;                                     \
    const Word vectors = (s.stop + PER_VECTOR - 1) / PER_VECTOR;                                                   \
    Vector *place = (Vector *)s.at;                                                                                \
    const Vector *values = (const Vector *)s.values;                                                               \
    Word q = (Word)blockIdx.x * blockDim.x + threadIdx.x;                                                          \
    for (Word now = (q + generation * s.step) % s.period; q < vectors; q += stride) {                              \
        const Word before = q * PER_VECTOR;                                                                        \
        const unsigned begin = before < s.first ? (unsigned)(s.first - before) : 0;                                \
        const unsigned end = before + PER_VECTOR > s.stop ? (unsigned)(s.stop - before) : (unsigned)PER_VECTOR;    \
        VISIT(place[q], values[now], begin, end);                                                                  \
        now += hop;                                                                                                \
        now -= now < s.period ? 0 : s.period;                                                                      \
    }

static __device__ __forceinline__ void put(Vector &place, const Vector &value, unsigned begin, unsigned end) {
    if (begin == 0 && end == PER_VECTOR)
        place.whole = value.whole;
    else
        for (unsigned i = begin; i < end; i++) place.each[i] = value.each[i];
}

static __device__ __forceinline__ unsigned differing(const Vector &place, const Vector &value, unsigned begin,
                                                     unsigned end) {
    unsigned count = 0;
    if (begin == 0 && end == PER_VECTOR) {
        Vector found, right;
        found.whole = place.whole;
        right.whole = value.whole;
        for (unsigned i = 0; i < PER_VECTOR; i++) count += found.each[i] != right.each[i];
    } else {
        for (unsigned i = begin; i < end; i++) count += place.each[i] != value.each[i];
    }
    return count;
}

extern "C" __global__ void fill(const Segment *segments, Word generation) {
#define VISIT(place, value, begin, end) put(place, value, begin, end)
    FOR_ALL_VECTORS(VISIT)
#undef VISIT
}

extern "C" __global__ void count_wrong(const Segment *segments, Word generation, Word *wrong) {
    Word count = 0;
#define VISIT(place, value, begin, end) count += differing(place, value, begin, end)
    FOR_ALL_VECTORS(VISIT)
#undef VISIT
    if (count) atomicAdd(wrong, count);  // rarely
}
