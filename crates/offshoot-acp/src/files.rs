//! Text files that an agent reads and writes through us, below its folder and nowhere else.
//!
//! A link may be read through when it leads to a file below the folder, and is never written through. A
//! file with more than one name (a hard link) is not written: where its other names are, nobody knows.
//! This is no sandbox: an agent that can change the folder meanwhile has other ways to files, too.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agent_client_protocol::Error;
use rustix::fs::OFlags;
use serde_json::{Value, json};
use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How large a file may be that is read or written (16 MiB).
const LIMIT: u64 = 16 * 1024 * 1024;

const NOFOLLOW_NONBLOCK: i32 = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .bits()
    .cast_signed();

fn refused(what: impl std::fmt::Display) -> Error {
    let mut error = Error::invalid_params();
    error.message = what.to_string();
    error
}

fn path_in(params: &Value) -> Result<PathBuf, Error> {
    let path = params.get("path").and_then(Value::as_str);
    let path = PathBuf::from(path.ok_or_else(|| refused("expected `path`, an absolute path"))?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(refused("expected an absolute path"))
    }
}

/// The path without links, if it is below the folder.
async fn inside(folder: &Path, path: &Path) -> Result<PathBuf, Error> {
    let folder = tokio::fs::canonicalize(folder).await.map_err(refused)?;
    let found = tokio::fs::canonicalize(path).await;
    let real = found.map_err(|error| refused(format_args!("{}: {error}", path.display())))?;
    if real.starts_with(&folder) {
        Ok(real)
    } else {
        let (path, folder) = (path.display(), folder.display());
        Err(refused(format_args!("{path} is not below {folder}")))
    }
}

/// `fs/read_text_file`: the file, or some of its lines.
pub(crate) async fn read(folder: &Path, params: &Value) -> Result<Value, Error> {
    let path = inside(folder, &path_in(params)?).await?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NOFOLLOW_NONBLOCK)
        .open(&path)
        .await
        .map_err(refused)?;
    let metadata = file.metadata().await.map_err(refused)?;
    if !metadata.is_file() {
        return Err(refused("not a file"));
    }
    let mut content = String::new();
    // It may grow while it is read.
    let mut file = file.take(LIMIT + 1);
    file.read_to_string(&mut content).await.map_err(refused)?;
    if content.len() as u64 > LIMIT {
        return Err(refused(format_args!("larger than {LIMIT} bytes")));
    }
    let number = |name: &str| {
        let value = params.get(name).and_then(Value::as_u64);
        value.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let (line, limit) = (number("line"), number("limit"));
    if line.is_none() && limit.is_none() {
        return Ok(json!({ "content": content }));
    }
    // Lines are counted from 1.
    let lines = content
        .split_inclusive('\n')
        .skip(line.unwrap_or(1).saturating_sub(1));
    let lines: String = lines.take(limit.unwrap_or(usize::MAX)).collect();
    Ok(json!({ "content": lines }))
}

/// `fs/write_text_file`: makes the file or replaces what is in it.
pub(crate) async fn write(folder: &Path, params: &Value) -> Result<Value, Error> {
    let path = path_in(params)?;
    let content = params.get("content").and_then(Value::as_str);
    let content = content.ok_or_else(|| refused("expected `content`, a text"))?;
    if content.len() as u64 > LIMIT {
        return Err(refused(format_args!("larger than {LIMIT} bytes")));
    }
    let parent = path.parent().ok_or_else(|| refused("not a file"))?;
    let name = path.file_name().ok_or_else(|| refused("not a file"))?;
    let real = inside(folder, parent).await?.join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        // A link may lead out of the folder; a pipe without a reader would be waited for.
        .custom_flags(NOFOLLOW_NONBLOCK)
        .open(&real)
        .await
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                refused("a link: expected a file")
            }
            _ => refused(error),
        })?;
    // What was opened, and not what is at the path by now.
    let metadata = file.metadata().await.map_err(refused)?;
    if !metadata.is_file() {
        return Err(refused("not a file"));
    }
    if metadata.nlink() > 1 {
        let words = "the file has further names (hard links), which may be outside of the folder";
        return Err(refused(words));
    }
    file.set_len(0).await.map_err(refused)?;
    file.write_all(content.as_bytes()).await.map_err(refused)?;
    file.flush().await.map_err(refused)?;
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_below_the_folder_are_read_and_written_and_no_others() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("new"), folder.join("dangling")).unwrap();
        std::fs::hard_link(outer.path().join("secret"), folder.join("hard")).unwrap();
        std::os::unix::fs::symlink(folder.join("a.txt"), folder.join("near")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), 0o600.into()).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let file = json!({ "path": at("a.txt"), "content": "1\n2\n3\n" });
        assert_eq!(write(&folder, &file).await.unwrap(), json!({}));
        let whole = read(&folder, &json!({ "path": at("a.txt") }))
            .await
            .unwrap();
        assert_eq!(whole["content"], "1\n2\n3\n");
        let some = json!({ "path": at("a.txt"), "line": 2, "limit": 1 });
        assert_eq!(read(&folder, &some).await.unwrap()["content"], "2\n");
        for bad in [
            at("link"),
            at("../secret"),
            at("missing"),
            at(""),
            "a.txt".into(),
        ] {
            assert!(
                read(&folder, &json!({ "path": bad })).await.is_err(),
                "{bad}"
            );
        }
        for bad in [
            at("link"),
            at("../new"),
            at("dangling"),
            at("hard"),
            at("near"),
            at("pipe"),
            at("no/where"),
            at(""),
        ] {
            let params = json!({ "path": bad, "content": "y" });
            assert!(write(&folder, &params).await.is_err(), "{bad}");
        }
        assert_eq!(
            std::fs::read_to_string(outer.path().join("secret")).unwrap(),
            "x"
        );
        assert!(!outer.path().join("new").exists());
        assert_eq!(
            std::fs::read_to_string(folder.join("a.txt")).unwrap(),
            "1\n2\n3\n"
        );
        let near = read(&folder, &json!({ "path": at("near"), "line": 3 })).await;
        assert_eq!(near.unwrap()["content"], "3\n");
        assert!(read(&folder, &json!({ "path": at("pipe") })).await.is_err());
        let shorter = json!({ "path": at("a.txt"), "content": "4\n" });
        write(&folder, &shorter).await.unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.join("a.txt")).unwrap(),
            "4\n"
        );
        assert!(read(&folder, &json!({})).await.is_err());
    }
}
