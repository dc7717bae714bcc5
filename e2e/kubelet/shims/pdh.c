// pdh.dll for Wine 8, whose own knows two performance counters. The kubelet exits if one of the eleven that it asks for
// cannot be added. Here every counter can, has exactly one instance, and measures the Linux machine or is zero.
#include <windows.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define EXPORT __declspec(dllexport)
#define PDH_MORE_DATA 0x800007D2UL
#define PDH_INVALID_HANDLE 0xC0000BBCUL
#define PDH_FMT_DOUBLE 0x200
#define PDH_FMT_LARGE 0x400

enum kind { ZERO, CPU, WORKING_SET, COMMITTED };

typedef struct counter {
    struct counter *next;
    enum kind kind;
    double value;
    wchar_t instance[64];
    ULONGLONG idle, total;
} counter;

typedef struct { counter *first; } query;

// PDH_FMT_COUNTERVALUE and PDH_FMT_COUNTERVALUE_ITEM_W.
typedef struct { DWORD status; union { LONG l; double d; LONGLONG ll; } v; } fmtvalue;
typedef struct { wchar_t *name; fmtvalue value; } fmtitem;

static ULONGLONG ticks(FILETIME time)
{
    return ((ULONGLONG)time.dwHighDateTime << 32) | time.dwLowDateTime;
}

static void sample_cpu(counter *c)
{
    FILETIME idle_time, kernel, user;
    if (!GetSystemTimes(&idle_time, &kernel, &user)) return;
    ULONGLONG idle = ticks(idle_time), total = ticks(kernel) + ticks(user);
    if (c->total && total > c->total) c->value = 100.0 * (1.0 - (double)(idle - c->idle) / (double)(total - c->total));
    if (c->value < 0 || c->value > 100) c->value = 0;
    c->idle = idle;
    c->total = total;
}

static void sample(counter *c)
{
    MEMORYSTATUSEX memory = { sizeof memory };
    if (c->kind == CPU) {
        sample_cpu(c);
    } else if (c->kind != ZERO && GlobalMemoryStatusEx(&memory)) {
        c->value = c->kind == WORKING_SET ? (double)(memory.ullTotalPhys - memory.ullAvailPhys)
                                          : (double)(memory.ullTotalPageFile - memory.ullAvailPageFile);
    }
}

EXPORT LONG WINAPI PdhOpenQueryW(LPCWSTR source, DWORD_PTR user, HANDLE *handle)
{
    *handle = calloc(1, sizeof(query));
    return 0;
}

EXPORT LONG WINAPI PdhOpenQuery(LPCWSTR source, DWORD_PTR user, HANDLE *handle)
{
    return PdhOpenQueryW(source, user, handle);
}

EXPORT LONG WINAPI PdhOpenQueryA(LPCSTR source, DWORD_PTR user, HANDLE *handle)
{
    return PdhOpenQueryW(0, user, handle);
}

EXPORT LONG WINAPI PdhAddEnglishCounterW(HANDLE handle, LPCWSTR path, DWORD_PTR user, HANDLE *out)
{
    query *q = handle;
    if (!q) return PDH_INVALID_HANDLE;
    counter *c = calloc(1, sizeof *c);
    wcscpy(c->instance, wcsstr(path, L"(*)") ? L"vEthernet (Ethernet)" : L"_Total");
    c->kind = wcsstr(path, L"% Processor Time") ? CPU
            : wcsstr(path, L"Working Set")      ? WORKING_SET
            : wcsstr(path, L"Committed Bytes")  ? COMMITTED
                                                : ZERO;
    c->next = q->first;
    q->first = c;
    *out = c;
    return 0;
}

EXPORT LONG WINAPI PdhAddCounterW(HANDLE handle, LPCWSTR path, DWORD_PTR user, HANDLE *out)
{
    return PdhAddEnglishCounterW(handle, path, user, out);
}

EXPORT LONG WINAPI PdhCollectQueryData(HANDLE handle)
{
    query *q = handle;
    if (!q) return PDH_INVALID_HANDLE;
    for (counter *c = q->first; c; c = c->next) sample(c);
    return 0;
}

static void put(fmtvalue *out, DWORD format, double value)
{
    out->status = 0;
    if (format & PDH_FMT_DOUBLE) out->v.d = value;
    else if (format & PDH_FMT_LARGE) out->v.ll = (LONGLONG)value;
    else out->v.l = (LONG)value;
}

EXPORT LONG WINAPI PdhGetFormattedCounterValue(HANDLE handle, DWORD format, DWORD *type, void *value)
{
    if (!handle) return PDH_INVALID_HANDLE;
    put(value, format, ((counter *)handle)->value);
    return 0;
}

EXPORT LONG WINAPI PdhGetFormattedCounterArrayW(HANDLE handle, DWORD format, DWORD *size, DWORD *count, void *items)
{
    counter *c = handle;
    fmtitem *item = items;
    if (!c) return PDH_INVALID_HANDLE;
    DWORD needed = sizeof(fmtitem) + sizeof c->instance;
    *count = 1;
    if (*size < needed) {
        *size = needed;
        return PDH_MORE_DATA;
    }
    item->name = (wchar_t *)(item + 1);
    wcscpy(item->name, c->instance);
    put(&item->value, format, c->value);
    *size = needed;
    return 0;
}

EXPORT LONG WINAPI PdhCloseQuery(HANDLE handle)
{
    query *q = handle;
    while (q && q->first) {
        counter *c = q->first;
        q->first = c->next;
        free(c);
    }
    free(q);
    return 0;
}

EXPORT LONG WINAPI PdhValidatePathW(LPCWSTR path)
{
    return 0;
}
