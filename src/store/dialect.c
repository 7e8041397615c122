// SPDX-License-Identifier: Apache-2.0
/* ClickHouse's HTTP manners. See dialect.h. */
#include "store/dialect.h"

#include <string.h>
#include <strings.h>

static const struct {
	int code;
	const char *name;
} exception_names[] = {
	{ EXCEPTION_BAD_ARGUMENTS, "BAD_ARGUMENTS" },
	{ EXCEPTION_NOT_IMPLEMENTED, "NOT_IMPLEMENTED" },
	{ EXCEPTION_SYNTAX_ERROR, "SYNTAX_ERROR" },
	{ EXCEPTION_UNKNOWN_SETTING, "UNKNOWN_SETTING" },
	{ EXCEPTION_READONLY, "READONLY" },
	{ EXCEPTION_REQUIRED_PASSWORD, "REQUIRED_PASSWORD" },
	{ EXCEPTION_TOO_MANY_SIMULTANEOUS_QUERIES, "TOO_MANY_SIMULTANEOUS_QUERIES" },
	{ EXCEPTION_QUERY_IS_TOO_LARGE, "QUERY_IS_TOO_LARGE" },
	{ EXCEPTION_MEMORY_LIMIT_EXCEEDED, "MEMORY_LIMIT_EXCEEDED" },
	{ EXCEPTION_ZLIB_INFLATE_FAILED, "ZLIB_INFLATE_FAILED" },
	{ EXCEPTION_INTO_OUTFILE_NOT_ALLOWED, "INTO_OUTFILE_NOT_ALLOWED" },
	{ EXCEPTION_ACCESS_DENIED, "ACCESS_DENIED" },
	{ EXCEPTION_SET_NON_GRANTED_ROLE, "SET_NON_GRANTED_ROLE" },
	{ EXCEPTION_AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED" },
};

static const char *exception_name(enum exception code)
{
	for (size_t i = 0; i < ARRAY_SIZE(exception_names); i++) {
		if (exception_names[i].code == (int)code)
			return exception_names[i].name;
	}
	return "UNKNOWN_EXCEPTION";
}

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
	snprintf(f->text + n, sizeof(f->text) - (size_t)n, ". (%s)", exception_name(code));
}

/* The statuses that a ClickHouse server gives; every other code is a 500. */
unsigned int exception_http_status(int code)
{
	switch (code) {
	case 6:	  /* CANNOT_PARSE_TEXT */
	case 8:	  /* THERE_IS_NO_COLUMN */
	case 15:  /* DUPLICATE_COLUMN */
	case 25:  /* CANNOT_PARSE_ESCAPE_SEQUENCE */
	case 26:  /* CANNOT_PARSE_QUOTED_STRING */
	case 27:  /* CANNOT_PARSE_INPUT_ASSERTION_FAILED */
	case 36:  /* BAD_ARGUMENTS */
	case 37:  /* UNKNOWN_ELEMENT_IN_AST */
	case 38:  /* CANNOT_PARSE_DATE */
	case 41:  /* CANNOT_PARSE_DATETIME */
	case 44:  /* ILLEGAL_COLUMN */
	case 53:  /* TYPE_MISMATCH */
	case 62:  /* SYNTAX_ERROR */
	case 72:  /* CANNOT_PARSE_NUMBER */
	case 117: /* INCORRECT_DATA */
	case 123: /* UNKNOWN_TYPE_OF_AST_NODE */
	case 167: /* TOO_DEEP_AST */
	case 168: /* TOO_BIG_AST */
	case 223: /* UNEXPECTED_AST_STRUCTURE */
	case 321: /* VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE */
	case 376: /* CANNOT_PARSE_UUID */
	case 427: /* CANNOT_COMPILE_REGEXP */
	case 441: /* CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING */
	case 675: /* CANNOT_PARSE_IPV4 */
	case 676: /* CANNOT_PARSE_IPV6 */
		return 400;
	case 194: /* REQUIRED_PASSWORD */
		return 401;
	case 192: /* UNKNOWN_USER */
	case 193: /* WRONG_PASSWORD */
	case 497: /* ACCESS_DENIED */
	case 512: /* SET_NON_GRANTED_ROLE */
	case 516: /* AUTHENTICATION_FAILED */
		return 403;
	case 46:  /* UNKNOWN_FUNCTION */
	case 47:  /* UNKNOWN_IDENTIFIER */
	case 50:  /* UNKNOWN_TYPE */
	case 56:  /* UNKNOWN_STORAGE */
	case 60:  /* UNKNOWN_TABLE */
	case 63:  /* UNKNOWN_AGGREGATE_FUNCTION */
	case 73:  /* UNKNOWN_FORMAT */
	case 78:  /* UNKNOWN_TYPE_OF_QUERY */
	case 81:  /* UNKNOWN_DATABASE */
	case 115: /* UNKNOWN_SETTING */
	case 152: /* UNKNOWN_DIRECTION_OF_SORTING */
	case 336: /* UNKNOWN_DATABASE_ENGINE */
	case 511: /* UNKNOWN_ROLE */
		return 404;
	case 159: /* TIMEOUT_EXCEEDED */
		return 408;
	case 229: /* QUERY_IS_TOO_LARGE */
		return 413;
	case 779: /* UNSUPPORTED_MEDIA_TYPE */
		return 415;
	case 48: /* NOT_IMPLEMENTED */
		return 501;
	case 76:  /* CANNOT_OPEN_FILE */
	case 209: /* SOCKET_TIMEOUT */
	case 439: /* CANNOT_SCHEDULE_TASK */
		return 503;
	default:
		return 500;
	}
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

static int base64_value(char c)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(alphabet, c) : NULL;

	return p ? (int)(p - alphabet) : -1;
}

/* Returns the number of bytes, or -1. */
static int base64_decode(const char *in, char *out, size_t size)
{
	unsigned int bits = 0, held = 0;
	size_t n = 0;

	for (; *in && *in != '='; in++) {
		int v = base64_value(*in);

		if (v < 0)
			return -1;
		held = held << 6 | (unsigned int)v;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			if (n == size)
				return -1;
			out[n++] = (char)(held >> bits);
		}
	}
	return in[strspn(in, "=")] ? -1 : (int)n;
}

bool parse_basic_auth(const char *header, char *ret_user, size_t user_size, char *ret_password,
		      size_t password_size)
{
	char plain[512];
	char *colon;
	int n;

	if (strncasecmp(header, "Basic ", 6))
		return false;
	header += 6;
	n = base64_decode(header + strspn(header, " "), plain, sizeof(plain) - 1);
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
