// SPDX-License-Identifier: Apache-2.0
/* ClickHouse's HTTP conventions. See dialect.h. */
#include "store/dialect.h"

#include <string.h>
#include <strings.h>

#include "base/base64.h"

void set_failure(struct failure *f, enum exception code, const char *fmt, ...)
{
	va_list ap;
	int n;

	f->code = (int)code;
	n = snprintf(f->text, sizeof(f->text), "Code: %d. DB::Exception: ", f->code);
	va_start(ap, fmt);
	n += vsnprintf(f->text + n, sizeof(f->text) - 64 - (size_t)n, fmt, ap);
	va_end(ap);
	n = (int)strlen(f->text);
	snprintf(f->text + n, sizeof(f->text) - (size_t)n, ". (%s)", exception_name(f->code));
}

static bool starts_with(struct text t, const char *prefix)
{
	size_t n = strlen(prefix);

	return t.len >= n && !strncasecmp(t.at, prefix, n);
}

static bool ends_with(struct text t, const char *suffix)
{
	size_t n = strlen(suffix);

	return t.len >= n && !strncasecmp(t.at + t.len - n, suffix, n);
}

static bool equals(struct text t, const char *s)
{
	return t.len == strlen(s) && !strncasecmp(t.at, s, t.len);
}

const char *format_content_type(struct text f)
{
	if (starts_with(f, "TabSeparated") || starts_with(f, "TSV"))
		return "text/tab-separated-values; charset=UTF-8";
	if (starts_with(f, "CSVWithNames"))
		return "text/csv; charset=UTF-8; header=present";
	if (starts_with(f, "CSV"))
		return "text/csv; charset=UTF-8; header=absent";
	if (ends_with(f, "EachRow") && starts_with(f, "JSON"))
		return "application/x-ndjson; charset=UTF-8";
	if (equals(f, "NDJSON") || equals(f, "JSONLines"))
		return "application/x-ndjson; charset=UTF-8";
	if (starts_with(f, "JSON"))
		return "application/json; charset=UTF-8";
	if (equals(f, "XML"))
		return "application/xml; charset=UTF-8";
	if (starts_with(f, "RowBinary") || equals(f, "Native") || starts_with(f, "Arrow") ||
	    equals(f, "Parquet") || equals(f, "ORC") || equals(f, "Avro") ||
	    equals(f, "BSONEachRow") || equals(f, "MsgPack") || starts_with(f, "Protobuf") ||
	    equals(f, "CapnProto") || equals(f, "Npy") || equals(f, "RawBLOB"))
		return "application/octet-stream";
	return "text/plain; charset=UTF-8";
}

bool format_can_stream(struct text f)
{
	static const char *const plain[] = { "TabSeparated",
					     "TSV",
					     "TabSeparatedRaw",
					     "TSVRaw",
					     "CSV",
					     "JSONEachRow",
					     "NDJSON",
					     "JSONLines",
					     "JSONCompactEachRow",
					     "JSONStringsEachRow",
					     "RowBinary",
					     "Native",
					     "LineAsString" };

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (equals(f, plain[i]))
			return true;
	}
	return false;
}

bool is_plain_name(struct text name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.at[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_'))
			return false;
	}
	return name.len > 0;
}

bool parse_basic_auth(const char *header, char *ret_user, size_t user_size, char *ret_password,
		      size_t password_size)
{
	char plain[512];
	char *colon;
	long n;

	if (strncasecmp(header, "Basic ", 6))
		return false;
	header += 6;
	header += strspn(header, " ");
	n = base64_decode((struct text){ header, strlen(header) }, (uint8_t *)plain,
			  sizeof(plain) - 1);
	if (n < 0 || memchr(plain, '\0', (size_t)n))
		return false;
	plain[n] = '\0';
	colon = strchr(plain, ':');
	if (!colon)
		return false;
	*colon = '\0';
	return snprintf(ret_user, user_size, "%s", plain) < (int)user_size &&
	       snprintf(ret_password, password_size, "%s", colon + 1) < (int)password_size;
}

bool same_secret(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);
	unsigned char differs = a_len != b_len;

	for (size_t i = 0; i < b_len; i++)
		differs |= (unsigned char)(a[a_len ? i % a_len : 0] ^ b[i]);
	return !differs;
}

bool append_quoted(char **buf, size_t *len, size_t *size, struct text text, char quote)
{
	size_t need = *len + 4 * text.len + 3;
	char *p;

	if (need > *size) {
		size_t grown_size = need * 2;
		char *grown = realloc(*buf, grown_size);

		if (!grown)
			return false;
		*buf = grown;
		*size = grown_size;
	}
	p = *buf + *len;
	*p++ = quote;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.at[i];

		if (c == '\0') {
			memcpy(p, "\\0", 2);
			p += 2;
			continue;
		}
		if (c == '\\' || c == quote)
			*p++ = '\\';
		*p++ = c;
	}
	*p++ = quote;
	*p = '\0';
	*len = (size_t)(p - *buf);
	return true;
}
