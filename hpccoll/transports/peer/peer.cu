// The peer kernel: a whole operation in one launch. Each block runs a program of instructions on the memory of all ranks.
//
// It follows fold.cu in the text that is compiled, whose macros, types and fold_tile it uses. It includes no headers.
//
// A rank reads what its peers send where it lies in their memory, in the fold that uses it. Two flags order that. `ready`
// of a pair of ranks counts the messages that the sender has made readable, `read` those that the receiver has read, so
// that the sender may overwrite them. Flags lie in the memory of the rank that awaits them, count up for ever, and are
// raised with release and awaited with acquire semantics at the scope of the system (PTX ISA, memory consistency model).
// Block b of a rank exchanges flags only with block b of other ranks: blocks need not wait for each other.
//
// Small messages are written into the memory of their receiver instead, in words that carry their own flag: half of a word
// is data, the other half the number of the operation. A word is stored and loaded whole (PTX ISA: a scalar access of 64
// bits is performed as one), so that it needs neither another flag nor a fence. Even and odd operations have words of their
// own, and flags differ from those of two operations before: a receiver takes a word only if it is of its own operation.
//
// `programs` has the first instruction of each block, and the one after the last block's last. An instruction is a row of
// 8 words: its kind, and
//
// AWAIT, RAISE    address of the flag, messages of this pair in one operation, the message, number of these instructions
//                 that are executed at once, by a thread each
// FOLD            a row of fold.cu
// SYNC            nothing: the threads of the block wait for each other
// PUSH            address of the first word, of the first element, number of elements, bytes from the words of even
//                 operations to those of odd ones
// GATHER          address of out, index of the first input in `inputs`, number of inputs, number of elements, elements
//                 that a thread folds at once, and how many of the first ones lie before out. An input is three words:
//                 its address; the place of the first element in its word, or -1 for elements as they are; and the bytes
//                 to the words of odd operations

#define AWAIT 0
#define RAISE 1
#define FOLD 2
#define SYNC 3
#define PUSH 4
#define GATHER 5

#define WORDS 8
#define MOST 32         // instructions that are executed at once, at most
#define CHUNK 128       // instructions that are loaded into shared memory at once
#define GROUP (sizeof(STORED) < 4 ? 4 / (int)sizeof(STORED) : 1)        // elements that share words
#define GROUP_WORDS (sizeof(STORED) < 4 ? 1 : (int)sizeof(STORED) / 4)  // words that they take
#define INPUT 3         // numbers of an input of GATHER
#define BATCH 4         // inputs whose words are loaded at once

#define LOOKS 1024      // looks at a flag between two looks at `abort`, which lies in host memory
#define PATIENCE 65536  // the same until the block says for which instruction it waits

typedef unsigned long long Count;

__device__ __forceinline__ Count acquired(const Count* flag) {
    Count value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void release(Count* flag, Count value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

__device__ __forceinline__ int peeked(const int* word) {
    int value;
    asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ Count looked_at(const Count* word) {
    Count value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void put(Count* word, Count value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

// Return the value of the flag of an instruction after the operations of `epoch` before this one.
__device__ __forceinline__ Count flag_value(const long long* row, Count epoch) {
    return epoch * (Count)row[2] + (Count)row[3];
}

// What waits for a peer. While that takes long, and after the abort, `waits` tells the host what is awaited: 1 + the number
// of the instruction, and in the upper half of the word the number of the input.
struct Waiting {
    const int* abort;
    Count* waits;
    Count awaited;
    unsigned looks;
    bool told;
};

// Return whether to look again: not after the abort.
__device__ __forceinline__ bool looks_again(Waiting& waiting) {
    if (++waiting.looks % LOOKS) return true;
    const bool aborted = peeked(waiting.abort);
    if (aborted || waiting.looks % PATIENCE == 0) {
        put(waiting.waits, waiting.awaited + 1);
        waiting.told = true;
    }
    return !aborted;
}

__device__ __forceinline__ void end_wait(const Waiting& waiting) {
    if (waiting.told) put(waiting.waits, 0);
}

// Wait for a flag, and return whether it came before the abort.
__device__ bool await(const long long* row, Count epoch, long long number, const int* abort, Count* waits) {
    const Count* flag = (const Count*)row[1];
    const Count value = flag_value(row, epoch);
    Waiting waiting = {abort, waits, (Count)number, 0, false};
    while (acquired(flag) < value)
        if (!looks_again(waiting)) return false;
    end_wait(waiting);
    return true;
}

union Group {  // the elements that share words
    unsigned data[GROUP_WORDS];
    STORED element[GROUP];
};

// The flag of the words of an operation.
__device__ __forceinline__ unsigned word_flag(Count epoch) { return (unsigned)epoch + 1; }

// Return the words of even or of odd operations.
__device__ __forceinline__ Count* words_of(long long address, long long stride, Count epoch) {
    return (Count*)(address + (long long)(epoch & 1) * stride);
}

// Write a message into words of its receiver, with all threads of the block.
__device__ __forceinline__ void push(const long long* row, Count epoch) {
    Count* words = words_of(row[1], row[4], epoch);
    const STORED* from = (const STORED*)row[2];
    const long long elements = row[3];
    const Count flag = (Count)word_flag(epoch) << 32;
    for (long long first = (long long)threadIdx.x * GROUP; first < elements; first += (long long)THREADS * GROUP) {
        Group group;
#pragma unroll
        for (int i = 0; i < GROUP; ++i) group.element[i] = first + i < elements ? from[first + i] : (STORED)0;
#pragma unroll
        for (int k = 0; k < GROUP_WORDS; ++k) put(words + first / GROUP * GROUP_WORDS + k, flag | group.data[k]);
    }
}

// Fold inputs, some of which are words that peers write, with all threads of the block. Return whether all words came
// before the abort.
__device__ __forceinline__ bool gather(const long long* row, const long long* inputs, Count epoch, long long number,
                                       const int* abort, Count* waits) {
    STORED* out = (STORED*)row[1];
    inputs += row[2];
    const int count = (int)row[3];
    const long long elements = row[4], at_once = row[5], before = row[6];
    const unsigned flag = word_flag(epoch);

    for (long long first = (long long)threadIdx.x * at_once - before; first < elements; first += THREADS * at_once) {
        Group value;
        for (int begin = 0; begin < count; begin += BATCH) {
            Count word[BATCH][GROUP_WORDS];
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {  // all loads are under way before the first word is awaited
                const long long* input = inputs + (begin + j) * INPUT;
                if (begin + j < count && input[1] >= 0)
#pragma unroll
                    for (int k = 0; k < GROUP_WORDS; ++k)
                        word[j][k] = looked_at(words_of(input[0], input[2], epoch) + (input[1] + first) / GROUP * GROUP_WORDS + k);
            }
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {
                if (begin + j >= count) continue;
                const long long* input = inputs + (begin + j) * INPUT;
                Group arrival;
                if (input[1] < 0) {
#pragma unroll
                    for (int i = 0; i < GROUP; ++i)
                        if (i < at_once && first + i >= 0 && first + i < elements)
                            arrival.element[i] = ((const STORED*)input[0])[first + i];
                } else {
                    const long long place = input[1] + first;
                    const Count* words = words_of(input[0], input[2], epoch) + place / GROUP * GROUP_WORDS;
                    Waiting waiting = {abort, waits, (Count)(begin + j) << 32 | (Count)number, 0, false};
#pragma unroll
                    for (int k = 0; k < GROUP_WORDS; ++k) {
                        while ((unsigned)(word[j][k] >> 32) != flag) {
                            if (!looks_again(waiting)) return false;
                            word[j][k] = looked_at(words + k);
                        }
                        arrival.data[k] = (unsigned)word[j][k];
                    }
                    end_wait(waiting);
                    if (at_once < GROUP) arrival.data[0] >>= place % GROUP * 8 * sizeof(STORED);
                }
#pragma unroll
                for (int i = 0; i < GROUP; ++i)
                    value.element[i] = begin + j ? folded(value.element[i], arrival.element[i]) : arrival.element[i];
            }
        }
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
            if (i < at_once && first + i >= 0 && first + i < elements) out[first + i] = value.element[i];
    }
    return true;
}

// Fold a range with all threads of the block.
__device__ __forceinline__ void fold_range(const long long* row, const long long* inputs) {
    const long long elements = row[3], head = row[6];
    const long long in_tiles = head == elements ? elements : elements - head;
    const long long tiles = in_tiles <= (long long)TILE * WIDTH ? 1 : (in_tiles + TILE * WIDTH - 1) / (TILE * WIDTH);
    for (long long tile = 0; tile < tiles; ++tile) fold_tile(row, inputs, tile);
}

// One block on a multiprocessor may take all registers: with two, some variants spill a few bytes of each thread.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
peer(const long long* programs, const long long* instructions, const long long* inputs, Count* epochs, const int* abort,
     Count* waits) {
    __shared__ long long chunk[CHUNK * WORDS];
    const int me = threadIdx.x;
    const long long first = programs[blockIdx.x], last = programs[blockIdx.x + 1];
    const Count epoch = epochs[blockIdx.x];
    bool aborted = false;
    long long base = first, loaded = first;  // `chunk` has the instructions from `base` to before `loaded`

    for (long long at = first; at < last;) {
        if (at + MOST > loaded && loaded < last) {
            base = at;
            loaded = base + CHUNK < last ? base + CHUNK : last;
            __syncthreads();  // all threads have read the last chunk
            for (long long word = me; word < (loaded - base) * WORDS; word += THREADS)
                chunk[word] = instructions[base * WORDS + word];
            __syncthreads();
        }
        const long long* row = chunk + (at - base) * WORDS;
        const long long kind = row[0];
        long long done = 1;
        if (kind == AWAIT) {
            done = row[4];
            for (long long i = me; i < done; i += THREADS)
                aborted |= !await(row + i * WORDS, epoch, at + i, abort, waits + blockIdx.x);
            if (__syncthreads_or(aborted)) return;
        } else if (kind == RAISE) {
            done = row[4];
            __syncthreads();  // all threads have written what the flags release, and read what they let peers overwrite
            for (long long i = me; i < done; i += THREADS)
                release((Count*)row[i * WORDS + 1], flag_value(row + i * WORDS, epoch));
        } else if (kind == FOLD) {
            fold_range(row + 1, inputs);
        } else if (kind == PUSH) {
            push(row, epoch);
        } else if (kind == GATHER) {
            aborted = aborted || !gather(row, inputs, epoch, at, abort, waits + blockIdx.x);
        } else if (__syncthreads_or(aborted)) {
            return;
        }
        at += done;
    }
    if (__syncthreads_or(aborted)) return;  // all threads have read the epoch
    if (me == 0) epochs[blockIdx.x] = epoch + 1;
}
